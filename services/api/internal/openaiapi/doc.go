// Package openaiapi answers clients that speak the chat completions API of OpenAI.
//
// A model is a profile. Without a session id the client sends the whole conversation each time: it becomes a session of
// its own, with the earlier messages as its history. With a session id (header X-Session-Id or metadata.session_id) the
// history is the server's and only the last user message is new; it is the session that /v1/sessions/{id} shows for the
// same profile.
//
// What a client that goes away leaves behind:
//
//	session id    Idempotency-Key    its run
//	no            no                 is stopped: nobody can ask for its answer
//	no            yes                goes on, a repetition waits for it
//	yes           any                goes on
//
// A stream can only grow, while a run may begin anew on another worker. After that a stream goes on with what extends the
// text that was sent, and ends with an error if the new attempt says something else; see prose.
package openaiapi

// Package sandbox runs tools in processes of their own.
//
// Every call starts this very binary again with a first argument that [IsChild] knows; main hands over to [RunChild]
// before it does anything else. The child gets an empty environment, the workspace as working directory, and one job.
//
//	server ──job──► child ── operation: limits itself, works on files through os.Root
//	   ▲              └───── command:   supervisor ──► confined child: limits itself, becomes /bin/sh
//	   └──output, status──┘
//
// The pipe that carries the job stays open: when it closes, by a deadline, a cancelled call or the death of the server,
// the child ends its process tree, first politely (SIGTERM), then not. A supervisor stays outside of the limits so that
// what it supervises cannot escape it: it is process 1 of a PID namespace where those are permitted, else the reaper
// of orphans, so that a process which leaves the process group is found too.
//
// What enforces which limit depends on kernel and container: [Sandbox.Report] says it. A limit that nothing enforces is
// in the report as such, never silently absent.
//
// Linux only.
package sandbox

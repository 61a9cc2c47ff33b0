// What a program on the official OpenAI client does with Hermes. Prints what it saw as JSON.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const OpenAI = require('openai').default;

const { BASE_URL, API_KEY, MODEL } = process.env;
const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
const seen = {};

seen.models = [];
for await (const model of client.models.list()) seen.models.push(model.id);

const plain = await client.chat.completions.create({
  model: MODEL,
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'My name is Ada.' },
    { role: 'assistant', content: 'Hello Ada.' },
    { role: 'user', content: 'plain question' },
  ],
});
seen.plain = plain.choices[0].message.content;
seen.finish = plain.choices[0].finish_reason;
seen.usage = plain.usage;

const stream = await client.chat.completions.create({
  model: MODEL, stream: true, stream_options: { include_usage: true },
  messages: [{ role: 'user', content: 'streamed question' }],
});
seen.pieces = [];
for await (const chunk of stream) {
  if (chunk.choices[0]?.delta?.content) seen.pieces.push(chunk.choices[0].delta.content);
  if (chunk.choices[0]?.finish_reason) seen.streamFinish = chunk.choices[0].finish_reason;
  if (chunk.usage) seen.streamUsage = chunk.usage;
}

const session = { headers: { 'X-Session-Id': 'npm-session' } };
await client.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content: 'first of the session' }] }, session);
const second = await client.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content: 'second of the session' }] }, session);
seen.second = second.choices[0].message.content;

const errorOf = async (call) => {
  try {
    await call();
    return null;
  } catch (e) {
    return { name: e.constructor.name, status: e.status, code: e.code, type: e.type, param: e.param };
  }
};
const stranger = new OpenAI({ baseURL: BASE_URL, apiKey: 'sk-wrong', maxRetries: 0 });
seen.badKey = await errorOf(() => stranger.models.list());
seen.badModel = await errorOf(() => client.chat.completions.create({ model: 'no-such', messages: [{ role: 'user', content: 'x' }] }));
seen.tools = await errorOf(() => client.chat.completions.create({
  model: MODEL, messages: [{ role: 'user', content: 'x' }],
  tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }],
}));

console.log(JSON.stringify(seen));

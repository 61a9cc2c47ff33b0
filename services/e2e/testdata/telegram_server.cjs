// A Bot API server from the npm registry, on the port that the first argument names.
const TelegramServer = require('telegram-test-api');

new TelegramServer({ port: Number(process.argv[2]), host: '127.0.0.1' }).start();

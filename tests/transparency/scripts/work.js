// Work for a JIT: typed arrays, objects, closures, strings, regular expressions, promises, workers, children.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { execFileSync } = require('child_process');
const crypto = require('crypto');

function sieve(limit) {
  const composite = new Uint8Array(limit + 1);
  let count = 0;
  for (let i = 2; i <= limit; ++i) {
    if (composite[i]) continue;
    ++count;
    for (let k = i * 2; k <= limit; k += i) composite[k] = 1;
  }
  return count;
}

function objects(rounds) {
  const table = new Map();
  for (let i = 0; i < rounds; ++i) {
    const key = `k${(i * 7919) % 1009}`;
    const old = table.get(key) ?? { hits: 0, list: [] };
    table.set(key, { hits: old.hits + 1, list: [...old.list.slice(-3), i] });
  }
  return [...table.values()].reduce((sum, one) => (sum * 31 + one.hits + one.list.length) % 1000003, 1);
}

if (!isMainThread) {
  parentPort.postMessage(sieve(200000 + workerData) + objects(20000));
} else {
  console.log(sieve(2000000), objects(100000));
  let thrown = 0;
  for (let i = 0; i < 20000; ++i) {
    try { null.x; } catch (error) { thrown += error instanceof TypeError ? 1 : 0; }
  }
  console.log(thrown, 'abc'.repeat(20000).replace(/b(c)a/g, '$1').length);
  console.log(crypto.pbkdf2Sync('a', 'b', 20000, 16, 'sha256').toString('hex'));
  console.log(execFileSync('/bin/echo', ['child']).toString().trim());
  const workers = [0, 1, 2].map((n) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: n });
    worker.on('message', resolve);
    worker.on('error', reject);
  }));
  Promise.all(workers).then((results) => {
    console.log(results.join(' '));
    process.exit(3);
  });
}

// What the scripts of this folder share: tests by name, told as "ok NAME" and "not ok NAME: reason".
import pg from 'pg'

export const config = { host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE }

export async function key () {
  const c = new pg.Client(config)
  await c.connect()
  try {
    await c.query('SELECT 1 FROM cleave.shards')
    return " WITH (cleave.shard_key = 'k')"
  } catch {
    return ''
  } finally {
    await c.end()
  }
}

export function want (got, expected) {
  if (JSON.stringify(got) !== JSON.stringify(expected)) throw new Error(`${JSON.stringify(got)} is not ${JSON.stringify(expected)}`)
}

export async function run (tests, end) {
  for (const [name, f] of Object.entries(tests)) {
    try {
      await f()
      console.log('ok ' + name)
    } catch (e) {
      console.log(`not ok ${name}: ${String(e.message ?? e).replaceAll('\n', ' ')}`)
    }
  }
  if (end) await end()
  console.log('end')
}

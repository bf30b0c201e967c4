#!/usr/bin/env python3
"""What checkpoints every second cost a pipeline that has a large state.

An aggregate (count, sum, max) is filled with so many keys that its checkpoints name --gb gigabytes. Then a stream
of rows with random keys among --hot of them goes into it as fast as it takes them, in turns of --turn seconds with
checkpoints every second and with none. Shown: rows a second of the turns, medians and their ratio; of the
checkpoints, percentiles of how long the hand-over of state kept a worker from rows (the data path's stall; what a
tick brings out is apart: flush), of the barrier's way and of the whole; and bytes written for each byte changed, merging of files apart.
A table goes to stdout, the raw figures to --out.

usage: bench/checkpoints.py --weir PATH [--gb N] [--keys N] [--hot N] [--turns N] [--turn S] [--parallelism N] [--out FILE]
"""
import argparse, json, os, statistics, sys, tempfile, time
from harness import HERE, Server

PAD = 64  # bytes of text in a row
COLUMNS = "k bigint, v bigint, pad varchar"
FIGURES = ("seal_ms", "flush_ms", "align_ms", "barrier_ms", "encode_ms", "write_ms", "link_ms", "manifest_ms", "duration_ms",
           "changed_bytes", "written_bytes", "merged_bytes", "new_bytes", "entries")


def source(server, name, keys, rows=""):
    server.sql(f"CREATE SOURCE {name} ({COLUMNS}) WITH (connector = 'datagen', rate = 0, splits = 4, {rows} {keys}, "
               "fields.v.kind = 'random', fields.v.min = 1, fields.v.max = 1000000, "
               f"fields.pad.kind = 'random', fields.pad.length = {PAD}) FORMAT PLAIN ENCODE JSON")


def pipeline(server, keys, hot):
    source(server, "every", f"fields.k.kind = 'sequence', fields.k.start = 1, fields.k.end = {keys}", f"rows = {keys},")
    source(server, "some", f"fields.k.kind = 'random', fields.k.min = 1, fields.k.max = {hot}")
    server.sql("SET background_ddl = true")
    server.sql("CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n, sum(v) AS total, max(pad) AS newest "
               "FROM (SELECT * FROM every UNION ALL SELECT * FROM some) GROUP BY k")


def turn(server, seconds):
    """Rows a second, after two seconds to settle."""
    time.sleep(2)
    rows, began = server.rows_read(), time.time()
    time.sleep(seconds)
    return (server.rows_read() - rows) / (time.time() - began)


def checkpoints(server, after):
    """Figures of completed checkpoints, oldest first."""
    rows = server.sql(f"SELECT epoch, {', '.join(FIGURES)} FROM weir_catalog.checkpoints "
                      f"WHERE status = 'completed' AND epoch > {after} ORDER BY epoch")
    return [dict(zip(("epoch", *FIGURES), map(float, row))) for row in rows]


def newest(server):
    return int(server.sql("SELECT coalesce(max(epoch), 0) FROM weir_catalog.checkpoints")[0][0])


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def fill(server, keys):
    """Waits until every key is there, and durable."""
    deadline = time.time() + 1800
    while int(server.sql("SELECT coalesce(max(rows_read), 0) FROM weir_catalog.sources WHERE name = 'every'")[0][0]) < keys:
        if time.time() > deadline or server.process.poll() is not None:
            raise RuntimeError("the state is not filled")
        time.sleep(0.5)
    server.sql("CHECKPOINT")


def measure(options, work):
    server = Server(options.weir, options.parallelism, "1s", work, settings='"sink.log_limit" = "1GB"\n')
    try:
        began = time.time()
        pipeline(server, options.keys, options.hot)
        fill(server, options.keys)
        print(f"{server.metric('weir_checkpoint_last_bytes') / 1e9:.2f} GB of state after {time.time() - began:.0f} s",
              file=sys.stderr)
        speeds, found = {"1s": [], "0": []}, []
        for _ in range(options.turns):
            for interval in ("1s", "0"):
                server.sql(f"ALTER DATABASE dev SET checkpoint.interval = '{interval}'")
                server.sql("CHECKPOINT")
                before = newest(server)
                speeds[interval].append(turn(server, options.turn))
                found += checkpoints(server, before) if interval == "1s" else []
        size = server.metric("weir_checkpoint_last_bytes")
        return {"bytes": size, "speeds": speeds, "checkpoints": found, "peak_mib": server.peak_mib()}
    finally:
        server.stop()


def show(result):
    speeds = {interval: statistics.median(values) for interval, values in result["speeds"].items()}
    print(f"state                     {result['bytes'] / 1e9:8.2f} GB   (memory at most {result['peak_mib'] / 1024:.1f} GiB)")
    print(f"rows/s, checkpoints 1 s   {speeds['1s'] / 1e6:8.3f} M    {' '.join(f'{v / 1e6:.3f}' for v in result['speeds']['1s'])}")
    print(f"rows/s, none              {speeds['0'] / 1e6:8.3f} M    {' '.join(f'{v / 1e6:.3f}' for v in result['speeds']['0'])}")
    print(f"ratio                     {speeds['1s'] / speeds['0']:8.2f}")
    found = result["checkpoints"]
    if not found:
        sys.exit("no checkpoint was completed: make turns longer")
    print(f"{len(found)} checkpoints, ms             p50      p90      p99      max")
    for name in ("seal_ms", "flush_ms", "align_ms", "barrier_ms", "encode_ms", "write_ms", "link_ms", "manifest_ms", "duration_ms"):
        values = [c[name] for c in found]
        print(f"  {name:22}" + "".join(f"{percentile(values, part):9.1f}" for part in (0.5, 0.9, 0.99, 1)))
    total = {name: sum(c[name] for c in found) for name in ("changed_bytes", "written_bytes", "merged_bytes", "new_bytes", "entries")}
    changed = max(total["changed_bytes"], 1)
    print(f"changed a checkpoint      {changed / len(found) / 1e6:8.1f} MB   {total['entries'] / len(found) / 1e3:.0f} k entries")
    print(f"written for it            {total['written_bytes'] / changed:8.2f} x    and {total['merged_bytes'] / changed:.2f} x to merge files")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("--gb", type=float, default=1)
    parser.add_argument("--keys", type=int, help="default: 5 million a gigabyte")
    parser.add_argument("--hot", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--turn", type=float, default=10)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--out", default=os.path.join(HERE, "results", "checkpoints.json"))
    options = parser.parse_args()
    options.keys = options.keys or int(options.gb * 5_000_000)
    with tempfile.TemporaryDirectory() as work:
        result = measure(options, work)
    os.makedirs(os.path.dirname(options.out), exist_ok=True)
    json.dump(result, open(options.out, "w"), indent=1)
    show(result)

#!/usr/bin/env python3
"""Nexmark on a real server: events a second, CPU seconds, peak memory, checkpoint durations; how it
scales, what checkpoints cost; freshness and lookups while rows stream in; an idle server.

Every run starts a server of its own with its real guarantees on, creates the sources that the query
reads and a blackhole sink of the query, and measures from CREATE SINK until the last row is read and
visible. Files are written once, by Weir's own generator through its own file sink. Ratios to the
anchors are against figures measured on another day on a machine of this class, and marked so.

By default a few ways of running 5 M events (about ten minutes); with --full all of them (about
three quarters of an hour). Tables go to stdout and, with the raw figures, to --out.

usage: bench/nexmark.py --weir PATH [--full] [--events N] [--queries q0,q1] [--runs N] [--only CSV/2/1s]
       [--data DIR] [--out DIR] [--no-live]
"""
import argparse, json, os, re, shutil, statistics, sys, tempfile, time
from harness import HERE, Server
import live

TABLES = ("person", "auction", "bid")
COLUMNS = {
    "person": "id bigint, name varchar, emailaddress varchar, creditcard varchar, city varchar, state varchar, datetime timestamp, extra varchar",
    "auction": "id bigint, itemname varchar, description varchar, initialbid bigint, reserve bigint, datetime timestamp, expires timestamp, seller bigint, category bigint, extra varchar",
    "bid": "auction bigint, bidder bigint, price bigint, channel varchar, url varchar, datetime timestamp, extra varchar",
}
# As Flink's Nexmark declares it; its window functions ask for it.
WATERMARK = "WATERMARK FOR datetime AS datetime - INTERVAL '4' SECOND"
SHARE = {"person": 1, "auction": 3, "bid": 46}  # of 50 events
# Millions of rows a second: Flink 2.3, RocksDB, exactly once 10 s, CSV, one slot; DBSP in memory, one core.
FLINK = dict(q0=.362, q1=.545, q2=.490, q3=.143, q4=.048, q5=.079, q7=.037, q8=.054, q9=.026, q10=.236, q14=.543,
             q15=.164, q16=.041, q17=.117, q18=.086, q19=.108, q20=.050, q21=.222, q22=.384)
FLINK_TWO = dict(q0=.658, q4=.069, q5=.095, q7=.052, q18=.131, q20=.052)  # two slots, two cores
DBSP = dict(q0=1.61, q1=.95, q2=1.89, q3=1.71, q4=.80, q5=1.28, q7=.78, q8=1.72, q9=.24, q14=1.62, q15=.69, q16=.27,
            q17=.33, q18=.43, q19=.42, q20=.49, q21=1.22, q22=1.13)
STATEFUL = ("q3", "q4", "q5", "q7", "q8", "q9", "q15", "q16", "q17", "q18", "q19", "q20")
# Input / parallelism / checkpoint interval (0: none) / processors (a `c1` at the end: one).
SOME = ("csv/1/1s", "csv/1/1s/c1", "csv/2/1s", "csv/2/0", "json/2/1s", "builtin/1/1s/c1")
ALL = tuple(f"{i}/{p}/{c}" for i in ("csv", "json", "builtin") for p in (1, 2) for c in ("1s", "10s")) + (
    "csv/2/0", "csv/1/1s/c1", "builtin/1/1s/c1")
LIVE = ("q5", "q17", "q19")
HEADER = (f"{'way':16}{'query':6}{'M rows/s':>9}{'s':>7}{'CPU s':>7}{'MiB':>6}{'ckpt ms':>9}{'max':>7}"
          f"{'x Flink*':>9}{'x DBSP*':>8}")


def tables_of(query):
    # By what is read, not by name alone: bids have a column `auction`.
    return [t for t in TABLES if re.search(rf"(?:\bFROM|\bJOIN|TUMBLE\(|HOP\()\s*{t}\b", query, re.I)]


def source(table, kind, events, data, splits=4):
    if kind == "builtin":
        return (f"CREATE SOURCE {table} ({WATERMARK}) WITH (connector = 'nexmark', nexmark.table.type = '{table}', "
                f"events = {events}, rate = 0, splits = {splits})")
    options = "(delimiter = ',', without_header = true)" if kind == "csv" else ""
    return (f"CREATE SOURCE {table} ({COLUMNS[table]}, {WATERMARK}) WITH (connector = 'file', "
            f"path = '{data}/{kind}/{table}/*.{kind}') FORMAT PLAIN ENCODE {kind.upper()} {options}")


def write_files(weir, events, data):
    """The input files, once: rows in the order of their times, none of which is late."""
    for kind in ("csv", "json"):
        if os.path.exists(f"{data}/{kind}/in-order-{events}"):
            continue
        with tempfile.TemporaryDirectory() as work:
            server = Server(weir, 1, "1s", work)
            try:
                for table in TABLES:
                    server.sql(source(table, "builtin", events, data, splits=1))
                    header = "(delimiter = ',', without_header = true)" if kind == "csv" else ""
                    server.sql(f"CREATE SINK {table}_out AS SELECT * FROM {table} WITH (connector = 'file', path = "
                               f"'{data}/{kind}/{table}', type = 'append-only', commit_every = 10) "
                               f"FORMAT PLAIN ENCODE {kind.upper()} {header}")
                server.wait_rows(events, 600)
                server.sql("CHECKPOINT")
            finally:
                server.stop()
        for table in TABLES:
            join_files(f"{data}/{kind}/{table}", f"all.{kind}")
        open(f"{data}/{kind}/in-order-{events}", "w").close()


def join_files(directory, name):
    """One file of all that the sink made, in their order: files that are read side by side hold event time back."""
    parts = sorted(part for part in os.listdir(directory) if part.startswith("part-"))
    with open(os.path.join(directory, name), "wb") as out:
        for part in parts:
            with open(os.path.join(directory, part), "rb") as f:
                shutil.copyfileobj(f, out, 1 << 20)
            os.remove(os.path.join(directory, part))


def measure(args, query, way):
    kind, parallelism, checkpoint, *one = way.split("/")
    with tempfile.TemporaryDirectory() as work:
        server = Server(args.weir, int(parallelism), checkpoint, work, {0} if one else None)
        try:
            tables = tables_of(query)
            rows = sum(args.events // 50 * SHARE[t] for t in tables)
            for table in tables:
                server.sql(source(table, kind, args.events, args.data))
            cpu, start = server.cpu_seconds(), time.time()
            server.sql(f"CREATE SINK out AS {query} WITH (connector = 'blackhole', type = 'append-only', force_append_only = true)")
            server.wait_rows(rows, 900)
            server.sql("FLUSH")
            seconds, cpu = time.time() - start, server.cpu_seconds() - cpu
            durations = server.checkpoint_ms()
            return dict(rows=rows, seconds=seconds, rate=rows / seconds, cpu=cpu, peak_mib=server.peak_mib(),
                        checkpoint_ms=statistics.median(durations) if durations else 0,
                        checkpoint_max_ms=max(durations, default=0))
        finally:
            server.stop()


def run(args, ways, name, say):
    """A query in all ways, one after the other and then again: what else the machine does meets all of them."""
    query = open(os.path.join(HERE, "..", "nexmark", f"{name}.sql")).read().strip().rstrip(";")
    runs, errors = {way: [] for way in ways}, {}
    for _ in range(args.runs):
        for way in ways:
            try:
                runs[way].append(measure(args, query, way))
            except (RuntimeError, OSError) as error:
                errors[way] = str(error)
    return [result(args, way, name, runs[way], errors.get(way), say) for way in ways]


def result(args, way, name, runs, error, say):
    if error:
        say(f"{way:16}{name:6}  {error}")
        return dict(way=way, query=name, error=error)
    m = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
    two = way.split("/")[1] == "2"
    anchor = FLINK_TWO.get(name) if two else FLINK.get(name)
    flink = m["rate"] / 1e6 / FLINK[name] if name in FLINK else None
    # DBSP's figures count all events, also of tables that the query does not read.
    dbsp = args.events / m["seconds"] / 1e6 / DBSP[name] if name in DBSP and way.startswith("builtin") else None
    cell = lambda x: f"{x:.2f}" if x else ""
    say(f"{way:16}{name:6}{m['rate'] / 1e6:>9.3f}{m['seconds']:>7.2f}{m['cpu']:>7.1f}{m['peak_mib']:>6.0f}"
        f"{m['checkpoint_ms']:>9.1f}{m['checkpoint_max_ms']:>7.0f}{cell(flink):>9}{cell(dbsp):>8}")
    return dict(way=way, query=name, runs=runs, flink_ratio=flink, dbsp_ratio=dbsp,
                flink_equal_parallelism=m["rate"] / 1e6 / anchor if anchor else None, **m)


def ratios(results, way, key):
    return {r["query"]: r[key] for r in results if r["way"] == way and r.get(key)}


def summary(results, ways, say):
    """Geometric means and worst queries, by way; scaling; what checkpoints cost."""
    mean = lambda values: f"geometric mean {statistics.geometric_mean(values.values()):.2f}x"
    worst = lambda values: "worst {0} {1:.2f}x".format(*min(values.items(), key=lambda item: item[1]))
    for way in ways:
        for key, name in (("flink_ratio", "Flink*, one slot"), ("flink_equal_parallelism", "Flink*, equal parallelism"),
                          ("dbsp_ratio", "DBSP*, one core")):
            found = ratios(results, way, key)
            if found and not (key == "flink_equal_parallelism" and "/1/" in way):
                say(f"{way:16}{mean(found)}, {worst(found)} of {name} ({len(found)} queries)")

    def compare(a, b, what, queries):
        one, two = ratios(results, a, "rate"), ratios(results, b, "rate")
        both = {q: two[q] / one[q] for q in queries if q in one and q in two}
        if both:
            say(f"{what}: {mean(both)}, {worst(both)} ({b} to {a})")

    stateful = [q for q in STATEFUL]
    compare("csv/1/1s/c1", "csv/2/1s", "one core to two, stateful queries", stateful)
    compare("csv/1/1s", "csv/2/1s", "parallelism 1 to 2 on the same two cores, stateful queries", stateful)
    compare("csv/2/0", "csv/2/1s", "checkpoints every second to none, all queries", FLINK)
    decode = ratios(results, "json/1/1s", "cpu") or ratios(results, "json/2/1s", "cpu")
    rows = next((r["rows"] for r in results if r["query"] == "q2" and "rows" in r), 0)
    if "q2" in decode:
        say(f"JSON: q2 decodes, filters and all else {rows / decode['q2'] / 1e6:.2f} M bids a CPU second")


def live_part(args, results, say):
    peaks = ratios(results, "csv/2/1s", "rate")
    found = []
    for name in LIVE:
        if name not in peaks:
            continue
        m = live.live(args.weir, args.data, f"{COLUMNS['bid']}, {WATERMARK}", name, peaks[name] / 2, 2, args.live_seconds)
        found.append(m)
        say(f"{name} at half its peak, {m['rate'] / 1e6:.2f} M rows/s of a followed file, {m['cores']:.2f} cores: fresh p50 "
            f"{m['fresh_p50_ms']:.0f} ms, p99 {m['fresh_p99_ms']:.0f} ms; lookup by key p50 {m['lookup_p50_ms']:.2f} ms, "
            f"p99 {m['lookup_p99_ms']:.2f} ms ({m['lookups']}); checkpoints p50 {m['checkpoint_ms']:.0f} ms, "
            f"max {m['checkpoint_max_ms']:.0f} ms")
    m = live.idle(args.weir, 100, 10)
    say(f"idle with {m['views']} views: {m['share'] * 100:.1f} % of a core, {m['peak_mib']:.0f} MiB")
    return dict(live=found, idle=m)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--queries", default=",".join(FLINK))
    parser.add_argument("--only", help="ways of running, apart by commas: csv/2/1s,builtin/1/10s/c1")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--data", default=os.path.join(tempfile.gettempdir(), "weir-bench"))
    parser.add_argument("--out", default=os.path.join(HERE, "results"))
    parser.add_argument("--no-live", action="store_true")
    parser.add_argument("--live-seconds", type=float, default=20)
    args = parser.parse_args()
    args.data = os.path.join(args.data, str(args.events))
    os.makedirs(args.data, exist_ok=True)
    os.makedirs(args.out, exist_ok=True)
    ways = args.only.split(",") if args.only else ALL if args.full else SOME
    table = open(os.path.join(args.out, "nexmark.txt"), "w")

    def say(line):
        print(line, flush=True)
        print(line, file=table, flush=True)

    write_files(args.weir, args.events, args.data)
    say(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, {args.events} events, medians of {args.runs}")
    say(HEADER)
    results = [r for name in args.queries.split(",") for r in run(args, ways, name, say)]
    say("")
    summary(results, ways, say)
    found = {} if args.no_live else live_part(args, results, say)
    say("* anchors measured earlier on another machine of this class (see bench/nexmark.py)")
    with open(os.path.join(args.out, "nexmark.json"), "w") as out:
        json.dump(dict(events=args.events, results=results, **found), out, indent=1)


if __name__ == "__main__":
    sys.exit(main())

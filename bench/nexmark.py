#!/usr/bin/env python3
"""Nexmark on a real server: events a second, CPU seconds, peak memory, checkpoint durations.

Every run starts a server of its own with its real guarantees on, creates the sources that the query
reads and a blackhole sink of the query, and measures from CREATE SINK until the last row is read and
visible. Files are written once, by Weir's own generator through its own file sink. Ratios to the
anchors are against figures measured on another day on a machine of this class, and marked so.

usage: bench/nexmark.py --weir PATH [--events N] [--queries q0,q1] [--inputs csv,json,builtin]
       [--parallelism 1,2] [--checkpoints 1s,10s,0] [--runs 3] [--out bench.json] [--data DIR]
"""
import argparse, json, os, re, signal, socket, statistics, subprocess, sys, tempfile, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
TABLES = ("person", "auction", "bid")
COLUMNS = {
    "person": "id bigint, name varchar, emailaddress varchar, creditcard varchar, city varchar, state varchar, datetime timestamp, extra varchar",
    "auction": "id bigint, itemname varchar, description varchar, initialbid bigint, reserve bigint, datetime timestamp, expires timestamp, seller bigint, category bigint, extra varchar",
    "bid": "auction bigint, bidder bigint, price bigint, channel varchar, url varchar, datetime timestamp, extra varchar",
}
SHARE = {"person": 1, "auction": 3, "bid": 46}  # of 50 events
# Millions of rows a second: Flink 2.3, RocksDB, exactly once 10 s, CSV, one slot; DBSP in memory, one core.
FLINK = dict(q0=.362, q1=.545, q2=.490, q3=.143, q4=.048, q5=.079, q7=.037, q8=.054, q9=.026, q10=.236, q14=.543,
             q15=.164, q16=.041, q17=.117, q18=.086, q19=.108, q20=.050, q21=.222, q22=.384)
DBSP = dict(q0=1.61, q1=.95, q2=1.89, q3=1.71, q4=.80, q5=1.28, q7=.78, q8=1.72, q9=.24, q14=1.62, q15=.69, q16=.27,
            q17=.33, q18=.43, q19=.42, q20=.49, q21=1.22, q22=1.13)


class Server:
    def __init__(self, weir, parallelism, checkpoint, work, settings="", wait=True):
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0)), b.bind(("127.0.0.1", 0))
            self.port, self.http = a.getsockname()[1], b.getsockname()[1]
        config = os.path.join(work, "weir.toml")
        with open(config, "w") as f:
            f.write(f'"checkpoint.interval" = "{checkpoint}"\n{settings}')
        self.log = open(os.path.join(work, "log"), "a")
        self.process = subprocess.Popen(
            [weir, "serve", "--data-dir", os.path.join(work, "data"), "--listen", f"127.0.0.1:{self.port}", "--http",
             f"127.0.0.1:{self.http}", "--config", config, "--parallelism", str(parallelism)],
            stdout=self.log, stderr=self.log)
        deadline = time.time() + 60
        while wait:
            try:
                self.sql("SELECT 1")
                return
            except RuntimeError:
                if time.time() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def sql(self, text):
        done = subprocess.run(["psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port),
                               "-U", "root", "-d", "dev", "-c", text], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{text}: {done.stderr.strip()}")
        return done.stdout.strip()

    def rows_read(self):
        with DIRECT.open(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return sum(float(v) for v in re.findall(r"^weir_connectors_source_rows_total\{[^}]*\} (\S+)", text, re.M))

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def tables_of(query):
    # By what is read, not by name alone: bids have a column `auction`.
    return [t for t in TABLES if re.search(rf"(?:\bFROM|\bJOIN|TUMBLE\(|HOP\()\s*{t}\b", query, re.I)]


def source(table, kind, events, data):
    if kind == "builtin":
        return (f"CREATE SOURCE {table} WITH (connector = 'nexmark', nexmark.table.type = '{table}', "
                f"events = {events}, rate = 0)")
    options = "(delimiter = ',', without_header = true)" if kind == "csv" else ""
    return (f"CREATE SOURCE {table} ({COLUMNS[table]}) WITH (connector = 'file', "
            f"path = '{data}/{kind}/{table}/*.{kind}') FORMAT PLAIN ENCODE {kind.upper()} {options}")


def write_files(weir, events, data):
    """The input files, once."""
    for kind in ("csv", "json"):
        if os.path.exists(f"{data}/{kind}/done-{events}"):
            continue
        with tempfile.TemporaryDirectory() as work:
            server = Server(weir, 1, "1s", work)
            try:
                for table in TABLES:
                    server.sql(source(table, "builtin", events, data))
                    header = "(delimiter = ',', without_header = true)" if kind == "csv" else ""
                    server.sql(f"CREATE SINK {table}_out AS SELECT * FROM {table} WITH (connector = 'file', path = "
                               f"'{data}/{kind}/{table}', type = 'append-only', commit_every = 10) "
                               f"FORMAT PLAIN ENCODE {kind.upper()} {header}")
                wait_rows(server, events, 600)
                server.sql("CHECKPOINT")
            finally:
                server.stop()
        open(f"{data}/{kind}/done-{events}", "w").close()


def wait_rows(server, rows, patience):
    deadline = time.time() + patience
    while server.rows_read() < rows:
        if time.time() > deadline or server.process.poll() is not None:
            raise RuntimeError(f"{server.rows_read()} of {rows} rows were read")
        time.sleep(0.02)


def measure(args, name, query, kind, parallelism, checkpoint):
    with tempfile.TemporaryDirectory() as work:
        server = Server(args.weir, parallelism, checkpoint, work)
        try:
            tables = tables_of(query)
            rows = sum(args.events // 50 * SHARE[t] for t in tables)
            for table in tables:
                server.sql(source(table, kind, args.events, args.data))
            cpu, start = server.cpu_seconds(), time.time()
            server.sql(f"CREATE SINK out AS {query} WITH (connector = 'blackhole', type = 'append-only', force_append_only = true)")
            wait_rows(server, rows, 900)
            server.sql("FLUSH")
            seconds, cpu = time.time() - start, server.cpu_seconds() - cpu
            durations = [float(d) for d in server.sql(
                "SELECT duration_ms FROM weir_catalog.checkpoints WHERE status = 'completed'").split()]
            return dict(rows=rows, seconds=seconds, rate=rows / seconds, cpu=cpu, peak_mib=server.peak_mib(),
                        checkpoint_ms=statistics.median(durations) if durations else 0,
                        checkpoint_max_ms=max(durations, default=0))
        finally:
            server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", required=True)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--queries", default=",".join(FLINK))
    parser.add_argument("--inputs", default="csv,json,builtin")
    parser.add_argument("--parallelism", default="1,2")
    parser.add_argument("--checkpoints", default="1s,10s")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--data", default=os.path.join(tempfile.gettempdir(), "weir-bench"))
    parser.add_argument("--out", default="bench.json")
    args = parser.parse_args()
    os.makedirs(args.data, exist_ok=True)
    if {"csv", "json"} & set(args.inputs.split(",")):
        write_files(args.weir, args.events, args.data)
    results = []
    print(f"{'query':6}{'input':>8}{'p':>3}{'ckpt':>6}{'M rows/s':>10}{'CPU s':>8}{'MiB':>8}{'ckpt ms':>9}{'max':>8}"
          f"{'x Flink*':>10}{'x DBSP*':>9}")
    for kind in args.inputs.split(","):
        for parallelism in args.parallelism.split(","):
            for checkpoint in args.checkpoints.split(","):
                for name in args.queries.split(","):
                    query = open(os.path.join(HERE, "..", "nexmark", f"{name}.sql")).read().strip().rstrip(";")
                    try:
                        runs = [measure(args, name, query, kind, parallelism, checkpoint) for _ in range(args.runs)]
                    except RuntimeError as error:
                        print(f"{name:6}{kind:>8}{parallelism:>3}{checkpoint:>6}  {error}", flush=True)
                        results.append(dict(query=name, input=kind, parallelism=parallelism, checkpoint=checkpoint, error=str(error)))
                        continue
                    m = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
                    flink = m["rate"] / 1e6 / FLINK[name] if name in FLINK else None
                    # DBSP's figures count all events, also of tables that the query does not read.
                    dbsp = args.events / m["seconds"] / 1e6 / DBSP[name] if name in DBSP and kind == "builtin" else None
                    results.append(dict(query=name, input=kind, parallelism=parallelism, checkpoint=checkpoint,
                                        runs=runs, flink_ratio=flink, dbsp_ratio=dbsp, **m))
                    cell = lambda x: f"{x:.2f}" if x else ""
                    print(f"{name:6}{kind:>8}{parallelism:>3}{checkpoint:>6}{m['rate'] / 1e6:>10.3f}{m['cpu']:>8.1f}"
                          f"{m['peak_mib']:>8.0f}{m['checkpoint_ms']:>9.1f}{m['checkpoint_max_ms']:>8.0f}"
                          f"{cell(flink):>10}{cell(dbsp):>9}", flush=True)
                good = [r["flink_ratio"] for r in results if r.get("flink_ratio") and
                        (r["input"], r["parallelism"], r["checkpoint"]) == (kind, parallelism, checkpoint)]
                if good:
                    print(f"   {kind} p={parallelism} {checkpoint}: geometric mean {statistics.geometric_mean(good):.2f}x Flink*, "
                          f"worst {min(good):.2f}x", flush=True)
    print("* anchors measured earlier on another machine of this class, one core (see bench/nexmark.py)")
    with open(args.out, "w") as out:
        json.dump(dict(events=args.events, results=results), out, indent=1)


if __name__ == "__main__":
    sys.exit(main())

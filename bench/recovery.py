#!/usr/bin/env python3
"""Recovery: kill -9 with much state, start again, and see how soon it runs: from the local disk, and from an
object store alone.

A server joins bids with their auctions, both sides kept, until its newest checkpoint names the bytes
asked for; then it is killed in mid-stream and started on the same data directory. Measured from the
start of the new process: until /readyz says so (the first barrier is through), until bids are read
again, until the first new checkpoint is durable, and until every operator is complete in memory again
(until then they read through to the store, which costs throughput, not correctness).

With --s3 (the tests' S3 server, bench/s3) the same again with checkpoints in a store on
loopback, which has its own process on the same cores: before the restart the local checkpoints are removed, so that
all of the state is downloaded. With --savepoint the same again from a savepoint in a local directory, made while the
stream runs (how long it took and how many rows went through meanwhile is shown), restored into a new data directory.

usage: bench/recovery.py --weir PATH [--s3 PATH] [--savepoint] [--gigabytes 1] [--rate 0] [--parallelism 2] [--runs 3]
       [--memory 60%] [--out recovery.json]
"""
import argparse, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time, urllib.error

from harness import DIRECT, Server

QUERY = """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.datetime, b.extra, a.itemname, a.description,
  a.seller, a.category, a.extra AS auction_extra FROM bid AS b JOIN auction AS a ON b.auction = a.id"""


STORED_RATE = 200_000  # events a second, where checkpoints are uploaded and none is asked for


class Storage:
    """An S3 server with a directory of its own; its credentials are what servers find in their environment."""

    def __init__(self, binary, work):
        self.process = subprocess.Popen([binary, os.path.join(work, "s3")], stdout=subprocess.PIPE, text=True)
        port = self.process.stdout.readline().strip()
        os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
        self.url = f"s3://weir/recovery?endpoint=http://127.0.0.1:{port}&region=eu-central-1&allow_http=true"

    def stop(self):
        self.process.kill()
        self.process.wait()


class Killable(Server):
    def __init__(self, args, work, storage=None, arguments=(), wait=True):
        self.args, self.work, self.started = args, work, time.time()
        settings = f'"memory.limit" = "{args.memory}"\n'
        if storage:
            settings += f'"checkpoint.storage" = "{storage.url}"\n'
        super().__init__(args.weir, args.parallelism, "1s", work, settings=settings, arguments=arguments,
                         wait=wait)

    def get(self, path):
        try:
            with DIRECT.open(f"http://127.0.0.1:{self.http}/{path}", timeout=5) as answer:
                return answer.read().decode()
        except (OSError, urllib.error.URLError):
            return None

    def metric(self, name):
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", self.get("metrics") or "", re.M)
        return sum(float(v) for v in values)

    def wait(self, what, reached, patience=900):
        deadline = time.time() + patience
        while not reached():
            if time.time() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{what}: not reached; the log is in {self.work}/log")
            time.sleep(0.02)
        return time.time() - self.started

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()


def save(server, url):
    """Makes a savepoint; how long it took, and the rows a second meanwhile."""
    rows, began = server.rows_read(), time.time()
    server.sql(f"SAVEPOINT TO '{url}'")
    took = time.time() - began
    return took, (server.rows_read() - rows) / took


def measure(args, source):
    """One run; `source`: what it recovers from."""
    with tempfile.TemporaryDirectory() as work:
        storage = Storage(args.s3, work) if source == "s3" else None
        server = Killable(args, work, storage)
        try:
            # What outruns its uploads has several times as much when the first checkpoint is there.
            rate = args.rate or (STORED_RATE if storage else 0)
            for table in ("auction", "bid"):
                server.sql(f"CREATE SOURCE {table} WITH (connector = 'nexmark', nexmark.table.type = '{table}', "
                           f"events = 100000000000, rate = {rate})")
            server.sql(f"CREATE SINK out AS {QUERY} WITH (connector = 'blackhole', type = 'append-only')")
            wanted = args.gigabytes * 1e9
            filled = server.wait("state", lambda: server.metric("weir_checkpoint_last_bytes") >= wanted)
            state, rows = server.metric("weir_checkpoint_last_bytes"), server.rows_read()
            resident = server.metric("process_resident_memory_bytes")
            url, saved, arguments, lost = "file://" + os.path.join(work, "saved"), None, (), []
            if source == "savepoint":
                saved, arguments, lost = save(server, url), ("--restore", url), ["data"]
            elif source == "s3":
                lost = ["data/checkpoints", "data/live"]
            before = server.metric("weir_checkpoint_last_epoch")
            server.kill()
            for path in lost:
                shutil.rmtree(os.path.join(work, path), ignore_errors=True)
            server = Killable(args, work, storage, arguments, wait=False)
            ready = server.wait("readiness", lambda: server.get("readyz") == "ready\n")
            reading = server.wait("rows", lambda: server.rows_read() > 0)
            durable = server.wait("a checkpoint", lambda: server.metric("weir_checkpoint_last_epoch") > before)
            at = server.rows_read()
            complete = server.wait("completeness", lambda: server.metric("weir_dataflow_incomplete_operators") == 0) \
                if args.complete else None
            meanwhile = (server.rows_read() - at) / (complete - durable) if complete and complete > durable else None
            return dict(source=source, saved=saved, state_bytes=state, rows=rows, resident_bytes=resident, fill_seconds=filled, ready=ready,
                        reading=reading, durable=durable, complete=complete, rate_meanwhile=meanwhile)
        finally:
            server.kill()
            if storage:
                storage.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", required=True)
    parser.add_argument("--s3")
    parser.add_argument("--savepoint", action="store_true")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--memory", default="60%")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-complete", dest="complete", action="store_false", help="don't wait for completeness")
    parser.add_argument("--out", default="recovery.json")
    args = parser.parse_args()
    print(f"{'from':<10}{'state MB':>9}{'M rows':>8}{'RSS MB':>8}{'ready s':>9}{'reading s':>11}{'durable s':>11}"
          f"{'complete s':>12}{'k rows/s meanwhile':>20}")
    runs = []
    for source in ["local"] + ["s3"] * bool(args.s3) + ["savepoint"] * args.savepoint:
        of_source = []
        for _ in range(args.runs):
            m = measure(args, source)
            of_source.append(m)
            cell = lambda x: f"{x:.2f}" if x is not None else "-"
            print(f"{m['source']:<10}{m['state_bytes'] / 1e6:>9.0f}{m['rows'] / 1e6:>8.2f}"
                  f"{m['resident_bytes'] / 1e6:>8.0f}{m['ready']:>9.2f}{m['reading']:>11.2f}{m['durable']:>11.2f}"
                  f"{cell(m['complete']):>12}{cell(m['rate_meanwhile'] and m['rate_meanwhile'] / 1e3):>20}", flush=True)
        if source == "savepoint":
            took, rates = zip(*(m["saved"] for m in of_source))
            print(f"savepoint: made in {statistics.median(took):.2f} s, {statistics.median(rates) / 1e3:.0f} k rows/s meanwhile")
        print(f"{source}: median ready {statistics.median(m['ready'] for m in of_source):.2f} s, "
              f"durable {statistics.median(m['durable'] for m in of_source):.2f} s", flush=True)
        runs += of_source
    with open(args.out, "w") as out:
        json.dump(dict(gigabytes=args.gigabytes, parallelism=args.parallelism, memory=args.memory, runs=runs), out, indent=1)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How the cost of an event grows with the state, and with the number of views on one source.

State: an aggregate and a join over the same events, with a number of keys, ten and a hundred times as
many. Views: one, ten and a hundred of them on one source, which is read once. The cost is CPU seconds a
million events (and a view), of events after the first fifth, so that neither a start nor the filling of a
table counts; it should grow no faster than logarithmically: caches miss more, no more.
A table goes to stdout and, with a plot (growth.svg) and the raw figures, to --out.

usage: bench/growth.py --weir PATH [--events N] [--runs N] [--out DIR]
"""
import argparse, json, math, os, statistics, sys, tempfile
from harness import HERE, Server

KEYS = (100_000, 1_000_000, 10_000_000)
JOINED = (20_000, 200_000, 2_000_000)
INSERTED = 500_000  # rows of a statement
VIEWS = (1, 10, 100)
BIDS = 46 / 50  # of the events


def source(events):
    return (f"CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'bid', events = {events}, rate = 0, "
            "splits = 4)")


def aggregate(keys):
    return [], [f"CREATE MATERIALIZED VIEW v AS SELECT (bidder * 7919 + auction) % {keys} AS k, count(*) AS n, "
                f"max(price) AS most, sum(price) AS total FROM bid GROUP BY 1"]


def join(keys):
    return ([f"CREATE TABLE d (k bigint PRIMARY KEY, name varchar)",
             *(f"INSERT INTO d SELECT i, 'name of ' || i FROM generate_series({i}, {min(i + INSERTED, keys) - 1}) AS s(i)"
               for i in range(0, keys, INSERTED)), "FLUSH"],
            [f"CREATE SINK v AS SELECT b.auction, b.price, d.name FROM bid b JOIN d ON d.k = (b.bidder * 7919 + b.auction) % "
             f"{keys} WITH (connector = 'blackhole', type = 'append-only', force_append_only = true)"])


def views(count):
    return [], [f"CREATE MATERIALIZED VIEW v{i} AS SELECT auction % 1000 AS k, count(*) AS n, max(price) AS most FROM bid "
                f"WHERE bidder % 100 <> {i} GROUP BY 1" for i in range(count)]


def cost(weir, events, statements):
    """CPU seconds of all events."""
    before, measured = statements
    with tempfile.TemporaryDirectory() as work:
        server = Server(weir, 2, "1s", work)
        try:
            for statement in before:
                server.sql(statement)
            cpu = server.cpu_seconds()
            server.sql(source(events))
            server.sql("SET background_ddl = true")
            for statement in measured:
                server.sql(statement)
            server.sql("WAIT")
            server.wait_rows(int(events * BIDS), 900)
            server.sql("FLUSH")
            return server.cpu_seconds() - cpu
        finally:
            server.stop()


def plot(path, series):
    """Lines over sizes on a logarithmic axis, each with the cost of its smallest as 1, as SVG."""
    width, height, left, bottom = 640, 360, 60, 50
    top = max(2.0, max(y / line[0][1] for _, line in series for _, y in line) * 1.1)
    x = lambda i: left + i * (width - left - 160) / 2
    y = lambda v: height - bottom - v / top * (height - bottom - 20)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for v in range(math.floor(top) + 1):
        out.append(f'<line x1="{left}" x2="{x(2)}" y1="{y(v)}" y2="{y(v)}" stroke="#ddd"/><text x="{left - 25}" y="{y(v) + 4}">{v}x</text>')
    for i, label in enumerate(("1x", "10x", "100x")):
        out.append(f'<text x="{x(i) - 10}" y="{height - 25}">{label}</text>')
    for (name, line), colour in zip(series, ("#1f77b4", "#d62728", "#2ca02c")):
        points = [(x(i), y(value / line[0][1])) for i, (_, value) in enumerate(line)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{a:.0f},{b:.0f}" for a, b in points)}"/>')
        out.append(f'<text x="{points[-1][0] + 8}" y="{points[-1][1] + 4}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{left}" y="{height - 6}">state, or views on one source; CPU an event (and view), the smallest is 1</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", required=True)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", default=os.path.join(HERE, "results"))
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    def median(events, statements):
        first = events // 5
        costs = (cost(args.weir, events, statements) - cost(args.weir, first, statements) for _ in range(args.runs))
        return statistics.median(costs) / (events - first) * 1e6

    series = [("aggregate", [(keys, median(args.events, aggregate(keys))) for keys in KEYS]),
              ("join", [(keys, median(args.events, join(keys))) for keys in JOINED]),
              ("views", [(n, median(args.events // 5, views(n)) / n) for n in VIEWS])]
    for name, line in series:
        what = "views" if name == "views" else "keys"
        unit = "CPU s a million events and view" if name == "views" else "CPU s a million events"
        cells = ", ".join(f"{size} {what} {value:.3f} ({value / line[0][1]:.2f}x)" for size, value in line)
        print(f"{name}: {cells} {unit}")
    plot(os.path.join(args.out, "growth.svg"), series)
    with open(os.path.join(args.out, "growth.json"), "w") as out:
        json.dump(dict(events=args.events, series=series), out, indent=1)


if __name__ == "__main__":
    sys.exit(main())

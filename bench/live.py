"""What a user waits for while rows stream in: freshness, lookups by key, and an idle server.

Freshness: rows are appended to a followed CSV file at half the rate that the query was measured at,
each with the clock's time of the append; a view next to the query's keeps the greatest of these
times. What a SELECT shows is that much older than now: all views show the same epoch, so it is the
freshness of the query's view too. Between the appends and SELECT lie the file's polling (100 ms), the
tick (100 ms) and the checkpoints (1 s), all as they are by default.
"""
import calendar, multiprocessing, os, random, tempfile, time
from harness import HERE, Client, Server, percentile

BLOCK = 2000  # rows of one append
MARK = b"@" * 26


# Feeding and asking are processes of their own: threads of one would wait for each other.
FORK = multiprocessing.get_context("fork")


def feed(path, lines, rate, stopping, fed):
    """Appends blocks of bids at a rate, each block with the time of its append, until it is to stop."""
    blocks = [b"".join(lines[i:i + BLOCK]) for i in range(0, len(lines), BLOCK)]
    with open(path, "ab", buffering=0) as file:
        start, rows = time.time(), 0
        while not stopping.is_set():
            time.sleep(max(0, start + rows / rate - time.time()))
            now = time.time()
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}"
            file.write(blocks[rows // BLOCK % len(blocks)].replace(MARK, stamp.encode()))
            rows += BLOCK
            fed.value = rows


def look_up(port, keys, stopping, answers):
    """Asks for one key after another; hands back what each took, in milliseconds."""
    client, lookups = Client(port), []
    while not stopping.is_set():
        at = time.perf_counter()
        client.query(f"SELECT * FROM by_auction WHERE auction = {random.choice(keys)}")
        lookups.append((time.perf_counter() - at) * 1000)
        time.sleep(0.002)
    answers.put(lookups)


def marked_lines(data, columns):
    """Bids as CSV lines, a mark in place of their time."""
    lines = []
    directory = f"{data}/csv/bid"
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".csv"):
            continue
        with open(os.path.join(directory, name), "rb") as f:
            for line in f:
                parts = line.split(b",")
                parts[5] = MARK
                lines.append(b",".join(parts))
                if len(lines) == 200_000:
                    return lines
    return lines


def seconds_of(text):
    """A timestamp's seconds since 1970."""
    whole, _, part = text.partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%d %H:%M:%S")) + (float("0." + part) if part else 0)


def live(weir, data, columns, name, rate, parallelism, seconds):
    """Streams bids into query `name` at `rate` and asks meanwhile."""
    query = open(os.path.join(HERE, "..", "nexmark", f"{name}.sql")).read().strip().rstrip(";")
    with tempfile.TemporaryDirectory() as work:
        server = Server(weir, parallelism, "1s", work)
        try:
            path = os.path.join(work, "bids.csv")
            open(path, "w").close()
            server.sql(f"CREATE SOURCE bid ({columns}) WITH (connector = 'file', path = '{path}', follow = true) "
                       "FORMAT PLAIN ENCODE CSV (delimiter = ',', without_header = true)")
            server.sql(f"CREATE MATERIALIZED VIEW answer AS {query}")
            server.sql("CREATE MATERIALIZED VIEW clock AS SELECT max(datetime) AS at FROM bid")
            # Its key is what the lookups ask by.
            server.sql("CREATE MATERIALIZED VIEW by_auction AS SELECT auction, count(*) AS bids, max(price) AS best FROM bid GROUP BY auction")
            stopping, fed, answers = FORK.Event(), FORK.Value("q", 0), FORK.Queue()
            feeder = FORK.Process(target=feed, args=(path, marked_lines(data, columns), rate, stopping, fed), daemon=True)
            feeder.start()
            time.sleep(min(5, seconds / 4))
            cpu, start = server.cpu_seconds(), time.time()
            keys = [a for a, in server.sql("SELECT auction FROM by_auction LIMIT 5000")]
            asker = FORK.Process(target=look_up, args=(server.port, keys, stopping, answers), daemon=True)
            asker.start()
            ages = []
            while time.time() < start + seconds:
                at = server.sql("SELECT at FROM clock")[0][0]
                ages.append((time.time() - seconds_of(at)) * 1000)
                time.sleep(0.01)
            cpu = (server.cpu_seconds() - cpu) / (time.time() - start)
            behind = (time.time() - start + min(5, seconds / 4)) * rate - fed.value
            stopping.set()
            lookups = answers.get(timeout=60)
            asker.join()
            feeder.join()
            checkpoints = server.checkpoint_ms()
            return dict(query=name, parallelism=parallelism, rate=rate, fed=fed.value, behind_ms=max(0, behind) * 1000 / rate, cores=cpu,
                        fresh_p50_ms=percentile(ages, .5), fresh_p99_ms=percentile(ages, .99), fresh_max_ms=max(ages),
                        lookups=len(lookups), lookup_p50_ms=percentile(lookups, .5), lookup_p99_ms=percentile(lookups, .99),
                        checkpoint_ms=percentile(checkpoints, .5), checkpoint_max_ms=max(checkpoints, default=0))
        finally:
            server.stop()


def idle(weir, views, seconds):
    """CPU of a server with views and no input, as a share of one core."""
    with tempfile.TemporaryDirectory() as work:
        server = Server(weir, 2, "1s", work)
        try:
            server.sql("CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'bid', events = 10000, rate = 0)")
            for i in range(views):
                server.sql(f"CREATE MATERIALIZED VIEW v{i} AS SELECT auction, count(*) AS n, max(price) AS p "
                           f"FROM bid WHERE price > {i} GROUP BY auction")
            server.sql("FLUSH")
            time.sleep(3)
            cpu = server.cpu_seconds()
            time.sleep(seconds)
            return dict(views=views, share=(server.cpu_seconds() - cpu) / seconds, peak_mib=server.peak_mib())
        finally:
            server.stop()

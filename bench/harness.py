"""What the benches share: a server of their own, and a small client that keeps its connection."""
import os, re, signal, socket, struct, subprocess, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


class Server:
    """A Weir in a directory of its own. `cores`: the processors that it may use; none: all. `settings`:
    more lines for weir.toml. `arguments`: more of the command's. `wait`: until it answers."""

    def __init__(self, weir, parallelism, checkpoint, work, cores=None, settings="", arguments=(), wait=True):
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0)), b.bind(("127.0.0.1", 0))
            self.port, self.http = a.getsockname()[1], b.getsockname()[1]
        config = os.path.join(work, "weir.toml")
        with open(config, "w") as f:
            f.write(f'"checkpoint.interval" = "{checkpoint}"\n{settings}')
        self.client = None
        self.log = open(os.path.join(work, "log"), "a")
        self.process = subprocess.Popen(
            [weir, "serve", "--data-dir", os.path.join(work, "data"), "--listen", f"127.0.0.1:{self.port}", "--http",
             f"127.0.0.1:{self.http}", "--config", config, "--parallelism", str(parallelism), *arguments],
            stdout=self.log, stderr=self.log,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)
        deadline = time.time() + 60
        while wait:
            try:
                self.client = Client(self.port)
                return
            except OSError:
                if time.time() > deadline or self.process.poll() is not None:
                    raise RuntimeError("the server does not start")
                time.sleep(0.02)

    def sql(self, text):
        """The rows of a statement, as lists of text."""
        return self.client.query(text)

    def metric(self, name):
        with DIRECT.open(f"http://127.0.0.1:{self.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return sum(float(v) for v in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", text, re.M))

    def rows_read(self):
        return self.metric("weir_connectors_source_rows_total")

    def wait_rows(self, rows, patience):
        deadline = time.time() + patience
        while self.rows_read() < rows:
            if time.time() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{self.rows_read()} of {rows} rows were read")
            time.sleep(0.02)

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) / 1024

    def checkpoint_ms(self):
        return [float(d) for d, in self.sql("SELECT duration_ms FROM weir_catalog.checkpoints WHERE status = 'completed'")]

    def stop(self):
        if self.client:
            self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Client:
    """PostgreSQL's simple query protocol, text results."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        words = b"user\0root\0database\0dev\0\0"
        self.socket.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
        self.answer()

    def close(self):
        self.socket.close()

    def query(self, text):
        words = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", 4 + len(words)) + words)
        return self.answer()

    def take(self, length):
        while len(self.buffer) < length:
            more = self.socket.recv(1 << 16)
            if not more:
                raise OSError("the server hung up")
            self.buffer += more
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def answer(self):
        rows, error = [], None
        while True:
            kind, length = struct.unpack("!ci", self.take(5))
            body = self.take(length - 4)
            if kind == b"D":
                rows.append(fields(body))
            elif kind == b"E":
                error = dict((part[:1], part[1:].decode()) for part in body.split(b"\0") if part)
            elif kind == b"Z":
                if error:
                    raise RuntimeError(f"{error.get(b'C')} {error.get(b'M')}")
                return rows


def fields(body):
    row, at = [], 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        length = struct.unpack("!i", body[at:at + 4])[0]
        at += 4
        row.append(None if length < 0 else body[at:at + length].decode())
        at += max(length, 0)
    return row


def percentile(values, share):
    """The value that `share` of `values` do not exceed."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")

#!/usr/bin/env bash
# The main job: starts a server, runs a pipeline, kills the server in mid-stream, restarts it, and
# reconciles: every source event once in the views, and once in the sink's files.
# usage: demo/run.sh path/to/weir        exit code 0 only if all reconciles
set -euo pipefail
weir=$1
here=$(cd "$(dirname "$0")" && pwd)
events=${WEIR_DEMO_EVENTS:-1000000}     # of which 46 in 50 are bids
rate=${WEIR_DEMO_RATE:-60000}           # events a second
work=$(mktemp -d); server=
cleanup() { [ -n "$server" ] && kill -9 "$server" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
read -r port http < <(python3 - <<'P'
import socket
s = [socket.socket() for _ in range(2)]
for x in s: x.bind(("127.0.0.1", 0))
print(*(x.getsockname()[1] for x in s))
P
)
sql() { PGOPTIONS= psql -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U root -d dev "$@"; }
now_ms() { date +%s%3N; }
start() {
  "$weir" serve --data-dir "$work/data" --listen "127.0.0.1:$port" --http "127.0.0.1:$http" >>"$work/log" 2>&1 &
  server=$!
  local deadline=$(( $(now_ms) + 60000 ))
  until sql -Atc 'SELECT 1' >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || { echo "the server did not start:"; tail -20 "$work/log"; exit 1; }
    [ "$(now_ms)" -lt "$deadline" ] || { echo "no answer within a minute"; tail -20 "$work/log"; exit 1; }
    sleep 0.02
  done
}
bids() { sql -Atc 'SELECT bids FROM bid_totals'; }

echo "== a server on 127.0.0.1:$port, data in $work/data"
start
echo "== the pipeline: three sources, four materialized views, one exactly-once file sink"
sql -v events="'$events'" -v rate="'$rate'" -v files="$work/files" -f "$here/pipeline.sql"

watch_results() { # seconds
  for _ in $(seq "$1"); do
    sql -At -F ' | ' -c "SELECT 'bids', bids, 'turnover', total FROM bid_totals"
    sleep 1
  done
}
watch_results 5
sql -c 'SELECT * FROM turnover ORDER BY window_start DESC LIMIT 3' -c 'SELECT * FROM top_bids ORDER BY price DESC, auction LIMIT 3'

kills=3
for kill in $(seq "$kills"); do
  echo "== kill -9 number $kill of $kills, in mid-stream at $(bids) bids"
  kill -9 "$server"; wait "$server" 2>/dev/null || true
  killed=$(now_ms)
  start
  recovery[kill]=$(( $(now_ms) - killed ))
  echo "   answers again after ${recovery[kill]} ms, at $(bids) bids"
  watch_results 2
done

expected=$(( events / 50 * 46 ))
echo "== letting it finish ($expected bids)"
deadline=$(( $(now_ms) + 300000 ))
until [ "$(bids)" = "$expected" ]; do
  [ "$(now_ms)" -lt "$deadline" ] || { echo "only $(bids) of $expected bids after five minutes"; tail -20 "$work/log"; exit 1; }
  sleep 0.5
done
sql -c 'CHECKPOINT'
count_files() { cat "$work"/files/*.json 2>/dev/null | wc -l; }
deadline=$(( $(now_ms) + 60000 ))
until [ "$(count_files)" -ge "$expected" ]; do
  [ "$(now_ms)" -lt "$deadline" ] || break
  sleep 0.2
done

python3 - "$work/files" "$expected" "${recovery[*]}" \
  "$(sql -At -F ' ' -c 'SELECT bids, total, moments FROM bid_totals')" \
  "$(sql -At -F ' ' -c 'SELECT sum(bids), sum(total) FROM turnover')" <<'P'
import glob, json, sys
files, expected, recovery, totals, turnover = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4].split(), sys.argv[5].split()
rows = total = 0
moments = set()
for name in sorted(glob.glob(files + "/*.json")):
    for line in open(name):
        row = json.loads(line)
        rows += 1
        total += row["price"]
        moments.add(row["datetime"])
table = [
    ("", "bids", "distinct", "sum of prices"),
    ("the source", expected, expected, ""),
    ("view bid_totals", int(totals[0]), int(totals[2]), int(totals[1])),
    ("view turnover, added up", int(turnover[0]), "", int(turnover[1])),
    ("files of the sink", rows, len(moments), total),
]
print("\n== reconciliation")
for name, *cells in table:
    print(f"   {name:<26}" + "".join(f"{c!s:>18}" for c in cells))
good = ({r[1] for r in table[1:]} == {expected} and {int(totals[2]), len(moments)} == {expected}
        and {int(totals[1]), int(turnover[1])} == {total})
print("   time to recover from each kill -9, ms:", recovery)
print("   every event is reflected exactly once" if good else "   IT DOES NOT RECONCILE")
sys.exit(0 if good else 1)
P
kill -TERM "$server"; wait "$server" 2>/dev/null || true; server=
cat <<E2

== next
   $weir serve                                  # a server of your own, data in ./weir-data
   psql -h 127.0.0.1 -p 4566 -U root -d dev     # then type what is in demo/pipeline.sql, or:
     CREATE TABLE t (id int PRIMARY KEY, v int);
     CREATE MATERIALIZED VIEW s AS SELECT count(*), sum(v) FROM t;
     INSERT INTO t VALUES (1, 10), (2, 20);  SELECT * FROM s;
E2

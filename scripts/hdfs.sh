#!/usr/bin/env bash
# Fetches a Hadoop mini cluster (90 MB of jars from Maven Central) once into a cache outside the clone, for
# the test of checkpoints in HDFS. Prints the directory of the jars.
set -euo pipefail
version=3.4.2
cache=${WEIR_CACHE:-$HOME/.cache/weir}
out=$cache/hadoop-minicluster-$version
if [ -d "$out" ]; then echo "$out"; exit 0; fi
mkdir -p "$cache"; exec 9>"$cache/hadoop.lock"; flock 9
if [ -d "$out" ]; then echo "$out"; exit 0; fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
echo "fetching a Hadoop mini cluster once into $out" >&2
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId><artifactId>hadoop-minicluster</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
      <version>$version</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
(cd "$work" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$work/jars") >&2
mv "$work/jars" "$out"   # last, so that a broken fetch leaves nothing
echo "$out"

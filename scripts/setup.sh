# Sourced by the Makefile: installs the Debian packages that the build and the tests need, when
# root; otherwise says the one line to run.
weir_missing=()
for weir_package in g++ pkg-config libclang-dev postgresql postgresql-client python3 procps; do
  dpkg -s "$weir_package" >/dev/null 2>&1 || weir_missing+=("$weir_package")
done
# For the Hadoop mini cluster of the tests.
command -v java >/dev/null || weir_missing+=(default-jre-headless)
command -v mvn >/dev/null || weir_missing+=(maven)
if [ ${#weir_missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    echo "installing ${weir_missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${weir_missing[@]}" >/dev/null
  else
    echo "Weir's build needs Debian packages. Run: sudo apt-get install -y ${weir_missing[*]}" >&2
    exit 1
  fi
fi

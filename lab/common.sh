# Sourced by the lab's scripts: where things are, how to become root, how a build is cached.
# shellcheck shell=bash
lab=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export cache=${SPARKWRIGHT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkwright}/lab

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

podman() {
  "$lab/podman" "$@"
}

# inputs_hash PATH...: 12 digits that change with the content or the name of any file below the lab's PATHs.
inputs_hash() {
  (cd "$lab" && find "$@" -type f -print0 | sort --zero-terminated | xargs --null sha256sum) | sha256sum | cut --characters=-12
}

# cached PATH BUILDER...: make PATH by running BUILDER with a temporary name; PATH appears only when it is complete.
cached() {
  local path=$1 partial=$1.partial start=$SECONDS
  shift
  [[ -e $path ]] && return
  as_root rm --recursive --force "$partial"
  "$@" "$partial" >&2
  as_root mv "$partial" "$path"
  echo "lab/build: $(basename "$path") in $((SECONDS - start)) s" >&2
}

# run_in_archive IMAGE.tar PODMAN_OPTION... -- COMMAND...: run a command in a saved image, without network.
run_in_archive() {
  local archive=$1 options=() image
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  image=$(podman load --quiet --input="$archive" | sed 's/.*: //')
  podman run --rm --network=none "${options[@]}" "$image" "$@"
  podman image rm "$image" >/dev/null
}

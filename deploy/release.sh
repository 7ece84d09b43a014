#!/usr/bin/env bash
# Makes the files of a release in bin/release: for each platform an archive and bills of
# materials, for linux deb and rpm packages and container images, a Homebrew formula, and
# checksums.
#
#   deploy/release.sh [OS/ARCH...]      default: linux and darwin, amd64 and arm64
#
# NFPM and CYCLONEDX name the tools; `make release` builds them. COSIGN_KEY names a private
# key of cosign, whose password is COSIGN_PASSWORD, to sign the checksums. The same commit
# gives the same bytes, except for the signature.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
fi
version=$(git describe --tags --match 'v*' 2>/dev/null || echo "v0.0.0-$(git rev-parse --short HEAD)")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION=$version SOURCE_DATE_EPOCH CGO_ENABLED=0
out=$PWD/bin/release
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { go build -trimpath -tags grpcnotrace -ldflags='-s -w' "$@"; }

# licenses prints the licenses of all modules in the binaries of a folder.
licenses() {
  local module version dir
  go version -m "$1/servetrace" "$1"/plugins/* | awk '$1 == "dep" {print $2, $3}' | sort -u | while read -r module version; do
    dir=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    printf '%s\n%s %s\n\n' "$(printf '=%.0s' {1..80})" "$module" "$version"
    find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) -print0 | sort -z | xargs -0 cat
    echo
  done
}

build -o "$work/host/" ./cmd/servetrace
images=()
for platform in "$@"; do
  export GOOS=${platform%/*} GOARCH=${platform#*/}
  export ARCH=$GOARCH
  name=servetrace_${version#v}_${GOOS}_$GOARCH
  export DIST=$work/$name
  echo "$name" >&2
  mkdir -p "$DIST/plugins" "$DIST/completions" "$DIST/man"
  build -o "$DIST/" ./cmd/servetrace
  build -o "$DIST/plugins/" ./plugins/...
  cp -R LICENSE NOTICE CHANGELOG.md deploy/systemd "$DIST/"
  (unset GOOS GOARCH && licenses "$DIST") >"$DIST/THIRD_PARTY_LICENSES"
  for shell in bash zsh fish; do
    "$work/host/servetrace" completion $shell >"$DIST/completions/servetrace.$shell"
  done
  "$work/host/servetrace" man "$DIST/man"
  [ "$GOOS" = linux ] || rm -r "$DIST/systemd"
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n >"$out/$name.tar.gz"
  # For the images only. The archive has the plugins as single executables.
  build -o "$work/plugins/$platform/" ./cmd/servetrace-plugins
  (
    unset GOOS GOARCH
    "$CYCLONEDX" bin -json -noserial -output "$out/$name.cdx.json" "$DIST/servetrace"
    "$CYCLONEDX" bin -json -noserial -output "$out/${name/servetrace_/servetrace-plugins_}.cdx.json" "$work/plugins/$platform/servetrace-plugins"
  )
  if [ "$GOOS" = linux ]; then
    "$NFPM" package --config deploy/nfpm.yaml --packager deb --target "$out/$name.deb"
    "$NFPM" package --config deploy/nfpm.yaml --packager rpm --target "$out/$name.rpm"
    cp "$work/plugins/$platform/servetrace-plugins" "$DIST/"
    images+=("$GOARCH=$DIST")
  fi
done
unset GOOS GOARCH

if [ ${#images[@]} -gt 0 ]; then
  go -C test/deploy build -o "$work/bin/" ./images
  "$work/bin/images" -version "${version#v}" -out "$work/images" "${images[@]}"
  for layout in "$work"/images/*; do
    tar -C "$layout" --sort=name --owner=0 --group=0 --numeric-owner --mode=a=rX,u+w --mtime="@$SOURCE_DATE_EPOCH" \
      -cf "$out/$(basename "$layout")_${version#v}.oci.tar" .
  done
fi

(
  cd "$out"
  "$OLDPWD/deploy/formula.sh" "${version#v}" *.tar.gz >servetrace.rb
  sha256sum -- * >checksums.txt
)
if [ -n "${COSIGN_KEY:-}" ]; then
  go -C test/deploy build -o "$work/bin/" ./sign
  "$work/bin/sign" -key "$COSIGN_KEY" "$out/checksums.txt"
fi
ls -l "$out"

#!/usr/bin/env bash
# Prints the Homebrew formula of a release.
#
#   deploy/formula.sh VERSION ARCHIVE...
set -euo pipefail
version=$1
shift
where=https://github.com/servetrace/servetrace

cat <<FORMULA
class Servetrace < Formula
  desc "Traces through exporter plugins: command, relay and stock plugins"
  homepage "$where"
  version "$version"
  license "Apache-2.0"

FORMULA
for archive in "$@"; do
  name=${archive##*/}
  case $name in
    *_darwin_amd64.*) os=macos cpu=intel ;;
    *_darwin_arm64.*) os=macos cpu=arm ;;
    *_linux_amd64.*) os=linux cpu=intel ;;
    *_linux_arm64.*) os=linux cpu=arm ;;
    *) echo "formula.sh: $name: Homebrew has no such platform" >&2 && exit 1 ;;
  esac
  cat <<FORMULA
  on_$os do
    on_$cpu do
      url "$where/releases/download/v$version/$name"
      sha256 "$(sha256sum "$archive" | cut -d ' ' -f 1)"
    end
  end

FORMULA
done
cat <<'FORMULA'
  def install
    libexec.install "servetrace", "plugins"
    # Not a link: the command looks for the folder "plugins" beside itself.
    bin.write_exec_script libexec/"servetrace"
    bash_completion.install "completions/servetrace.bash" => "servetrace"
    zsh_completion.install "completions/servetrace.zsh" => "_servetrace"
    fish_completion.install "completions/servetrace.fish"
    man1.install Dir["man/*.1"]
    doc.install "NOTICE", "THIRD_PARTY_LICENSES"
  end

  service do
    run [opt_bin/"servetrace", "relay"]
    environment_variables SERVE_TRACING_EXPORTER_PLUGIN: "console"
    keep_alive crashed: true
    log_path var/"log/servetrace.log"
    error_log_path var/"log/servetrace.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/servetrace version")
    assert_match "console", shell_output("#{bin}/servetrace plugin info console")
  end
end
FORMULA

#!/bin/bash
# check_majors.sh [RELEASE:MAJOR ...]: runs check.sh on other PostgreSQL majors.
#
# Each in a Debian of its own: debootstrap makes it in a temporary directory, check.sh
# runs in it by chroot, in name spaces of its own that die with this script, so that no
# process and no mount outlives the run.  All run at the same time.
# Default: trixie:17 testing:18.  Needs root.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || die "needs root (debootstrap, chroot)"
[ $# -gt 0 ] || set -- trixie:17 testing:18
SUITES=${SUITES:-compile,regress,isolation,tap}

need_packages debootstrap util-linux
make_work
SITE=$(debian_mirror) || die "apt knows no Debian mirror"

# check RELEASE MAJOR: all of it, into standard output.
check() {
  local release=$1 major=$2 root=$WORK/$1
  if ! setpriv --pdeathsig TERM debootstrap --variant=minbase "$release" "$root" "$SITE" \
    >"$WORK/log/debootstrap_$release" 2>&1; then
    tail -n 5 "$WORK/log/debootstrap_$release"
    say "no Debian $release could be set up"
    return
  fi
  # what the machine needs to reach its package mirror, the chroot needs too
  grep -ls '^ *Acquire' /etc/apt/apt.conf.d/* /etc/apt/apt.conf |
    xargs -r -I{} cp {} "$root/etc/apt/apt.conf.d/" || true
  # nobody needs these packages after a power failure
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/force-unsafe-io"
  mkdir -p "$root/shuffle_ext" "$root/dev/shm"
  chmod 1777 "$root/dev/shm"
  tar -C "$TOP" --exclude=./.git -cf - . | tar -C "$root/shuffle_ext" --no-same-owner -xf -
  # a second file system, which some tests need, and shared memory that is nobody else's
  # shellcheck disable=SC2016 # the inner shell expands
  setpriv --pdeathsig KILL unshare --mount --pid --ipc --fork --kill-child --mount-proc="$root/proc" \
    sh -c 'mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" && exec chroot "$@"' sh \
    "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI="${CI:-}" \
    PG_MAJOR="$major" NO_COLOR="$([ -n "$BOLD" ] || echo 1)" \
    bash /shuffle_ext/test/check.sh --only "$SUITES" </dev/null 2>&1 || true
}

for pair; do
  check "${pair%%:*}" "${pair##*:}" >"$WORK/log/${pair%%:*}" 2>&1 &
  PIDS+=($!)
done

for pair; do
  release=${pair%%:*}
  wait "${PIDS[0]}" || true
  PIDS=("${PIDS[@]:1}")
  title "PostgreSQL ${pair##*:} on Debian $release"
  cat "$WORK/log/$release"
  if ! add_totals "$(tail -n 1 "$WORK/log/$release")"; then
    say "FAIL  check.sh on Debian $release ended early"
    FAILED=$((FAILED + 1))
  fi
done
say
totals
[ "$FAILED" = 0 ]

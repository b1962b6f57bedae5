#!/bin/bash
# train_srun_test.sh TRAIN: ranks that Slurm's srun has started, on a cluster of this host alone.
. tests/examples/gpt/train_testing.sh
PATH=$PATH:/usr/sbin:/sbin
need_programs 'the packages slurmctld slurmd slurm-client munge, by tools/setup --launchers' \
  munged slurmctld slurmd srun

threads_of 3

# Its own, beside whatever Slurm the host has. Sockets have names of at most 108 bytes.
cluster=$(mktemp -d /tmp/brigade-slurm.XXXXXX) || exit 1
daemons=()
end_cluster() {
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}"
  wait
  rm -rf "$cluster"
}
trap end_cluster EXIT
user=$(id -un)
host=$(hostname -s)
cat >"$cluster/slurm.conf" <<END
ClusterName=brigade
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.socket
CredType=cred/munge
StateSaveLocation=$cluster
SlurmdSpoolDir=$cluster/spool
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
export SLURM_CONF=$cluster/slurm.conf

# start PROGRAM ARGUMENT...: as one of the daemons.
start() {
  "$@" >"$cluster/$1.log" 2>&1 &
  daemons+=($!)
}

# wait_for DAEMON COMMAND...: until the command succeeds.
wait_for() {
  local daemon=$1
  shift
  until "$@" >/dev/null 2>&1; do
    kill -0 "${daemons[-1]}" 2>/dev/null || fail "$daemon has ended: $(cat "$cluster/$daemon.log")"
    sleep 0.1
  done
}

# Bytes that nobody can foresee.
head -c 1024 /dev/urandom >"$cluster/munge.key" && chmod 400 "$cluster/munge.key"
chmod 755 "$cluster"
start munged -F --force --key-file="$cluster/munge.key" --socket="$cluster/munge.socket" \
  --pid-file="$cluster/munged.pid" --log-file="$cluster/munged.log" --seed-file="$cluster/seed"
wait_for munged test -S "$cluster/munge.socket"
start slurmctld -D
wait_for slurmctld sinfo
start slurmd -D
is_idle() { sinfo -h -o %T | grep -qx idle; }
wait_for slurmd is_idle

MASTER_PORT=$(free_port) srun --ntasks=3 --overcommit "$train" "${launched[@]}" \
  >"$files/out" 2>&1 || fail "exit code $?: $(cat "$files/out")"
expect_losses_of_threads

"""A real Slurm on this one machine: a controller and two nodes with two make-believe GPUs each, and on demand a
database. It needs root and Debian's packages (see install_slurm.sh), and stops what it started, by process id."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from small_things import one_at_a_time

os.environ["PATH"] += ":/usr/sbin:/sbin"  # where the daemons are, and where not every root looks
ETC = Path("/etc/slurm")  # jobs drop SLURM_CONF from their environment: only the built-in place is always found
CONFS = ("slurm.conf", "gres.conf", "slurmdbd.conf")
PREFIX = "anchorscope-slurm-"
NODES = ("n1", "n2")
GPUS = 2
CPUS = 2
PORTS = {"controller": 16817, "database": 16819, "mariadb": 16306, "n1": 16821, "n2": 16822}
NULL = os.makedev(1, 3)  # a GPU must be a character device; nobody reads this one
CONF = """\
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/controller.pid
SlurmdPidFile={base}/%n.pid
SlurmctldLogFile={base}/log/controller.log
SlurmdLogFile={base}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0
GresTypes=gpu
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=20
KillWait=3
MinJobAge=300
Prolog={base}/started.sh
Epilog={base}/ended.sh
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
{accounting}
{nodes}
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=gpu Nodes=n[1-2] MaxTime=1-00:00:00 State=UP
"""
NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} SocketsPerBoard=1 "
    "CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} Gres=gpu:fake:{gpus} State=UNKNOWN"
)
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database}
AccountingStoragePass={base}/munge/socket
AccountingStorageTRES=gres/gpu"""
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser=root
PidFile={base}/database.pid
LogFile={base}/log/database.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=slurm
StoragePass=local-only
StorageLoc=slurm_acct_db
"""
# Slurm itself says who holds which GPU, and when.
SAY = """\
#!/bin/sh
exec >> {base}/held.log
echo "{event} $(date +%s.%N) $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_JOB_PARTITION ${{SLURM_JOB_GPUS:--}}"
"""


@dataclass(frozen=True)
class Held:
    """What one job held on its node, as the node itself said, and when."""

    job: str
    node: str
    partition: str
    gpus: frozenset[str]
    start: float
    end: float


def missing(accounting: bool = False) -> str | None:
    """Why no Slurm can be started here; nothing where one can."""
    programs = ["slurmctld", "slurmd", "munged", *(["slurmdbd", "mariadbd"] if accounting else [])]
    absent = [name for name in programs if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} not installed"
    if os.getuid() != 0:
        return "starting a Slurm takes root"
    if any((ETC / name).exists() and not _left_by_us(ETC / name) for name in CONFS):
        return "this machine has a Slurm of its own"
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.mknod(f"{folder}/gpu", 0o600 | stat.S_IFCHR, NULL)
    except OSError as error:
        return f"a make-believe GPU cannot be made: {error.strerror}"
    return None


def _left_by_us(path: Path) -> bool:
    """Whether a killed test left this."""
    return path.is_symlink() and PREFIX in str(path.readlink())


def until(condition: Callable[[], object], what: str, seconds: float = 300) -> None:
    """Wait until something is true; it is an error if it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def ask(*command: str) -> str:
    """What a command prints; its error is ours."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


class Cluster:
    """Starts on entering, stops on leaving. A machine has room for one."""

    def __init__(self, accounting: bool = False):
        self.accounting = accounting
        self.base = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.mariadb: subprocess.Popen | None = None
        self.turn = contextlib.ExitStack()

    def __enter__(self) -> "Cluster":
        self.turn.enter_context(one_at_a_time("slurm"))
        self.turn.callback(self.stop)
        try:
            self._start()
        except BaseException:
            self.turn.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.turn.close()

    def _start(self) -> None:
        if _left_by_us(ETC / CONFS[0]):
            _stop((ETC / CONFS[0]).readlink().parent)
        self._write_files()
        self._start_munge()
        if self.accounting:
            self._start_mariadb()
            self.start_database()
            for entry in (["cluster", "toy"], ["account", "toy"], ["user", "root", "account=toy"]):
                subprocess.run(["sacctmgr", "-i", "-Q", "add", *entry], capture_output=True)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        until(lambda: ask("sinfo", "-h", "-N", "-p", "cpu", "-o", "%T").split() == ["idle"] * len(NODES), "idle nodes")

    def _write_files(self) -> None:
        base = self.base
        base.chmod(0o755)
        for folder in ("munge", "state", "log", "dev", *(f"spool/{node}" for node in NODES)):
            (base / folder).mkdir(parents=True)
        host = socket.gethostname().split(".")[0]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 9 // 10
        shape = {"host": host, "cpus": CPUS, "memory": memory, "gpus": GPUS}
        nodes = [NODE.format(node=node, port=PORTS[node], **shape) for node in NODES]
        accounting = ACCOUNTING.format(base=base, **PORTS) if self.accounting else ""
        conf = CONF.format(base=base, host=host, accounting=accounting, nodes="\n".join(nodes), **PORTS)
        (base / "slurm.conf").write_text(conf)
        for node in NODES:
            for gpu in range(GPUS):
                os.mknod(base / f"dev/{node}-gpu{gpu}", 0o600 | stat.S_IFCHR, NULL)
        devices = [f"NodeName={node} Name=gpu Type=fake File={base}/dev/{node}-gpu[0-{GPUS - 1}]" for node in NODES]
        (base / "gres.conf").write_text("\n".join(devices) + "\n")
        (base / "slurmdbd.conf").write_text(DATABASE.format(base=base, **PORTS))
        (base / "slurmdbd.conf").chmod(0o600)
        for name in ("started", "ended"):
            (base / f"{name}.sh").write_text(SAY.format(event=name, base=base))
            (base / f"{name}.sh").chmod(0o755)
        ETC.mkdir(exist_ok=True)
        for name in CONFS:
            (ETC / name).symlink_to(base / name)

    def _start_munge(self) -> None:
        folder = self.base / "munge"
        folder.chmod(0o711)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        places = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        ask("munged", "--force", *(f"--{name}={folder / file}" for name, file in places.items()))

    def _start_mariadb(self) -> None:
        folder = self.base / "mysql"
        folder.mkdir()
        shutil.chown(folder, "mysql")
        sock, common = folder / "socket", ["--no-defaults", f"--datadir={folder}", "--user=mysql"]
        ask("mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db")
        options = ["--bind-address=127.0.0.1", f"--port={PORTS['mariadb']}", f"--socket={sock}"]
        self.mariadb = subprocess.Popen(
            ["mariadbd", *common, *options, "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        client = ["--no-defaults", "-S", str(sock)]
        until(lambda: _works("mariadb-admin", *client, "ping"), "MariaDB")
        user = "slurm@'127.0.0.1'"
        create = f"create database slurm_acct_db; create user {user} identified by 'local-only'; "
        ask("mariadb", *client, "-e", create + f"grant all on slurm_acct_db.* to {user};")

    def start_database(self) -> None:
        subprocess.run(["slurmdbd"], check=True)
        until(lambda: _works("sacctmgr", "-n", "list", "cluster"), "slurmdbd")

    def start_controller(self) -> None:
        """Start the controller, with the state it had."""
        subprocess.run(["slurmctld"], check=True)
        until(lambda: "UP" in subprocess.run(["scontrol", "ping"], capture_output=True, text=True).stdout, "slurmctld")

    def start_node(self, node: str) -> None:
        subprocess.run(["slurmd", "-N", node, "-c"], check=True)

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """End a daemon, as a power cut would if not told otherwise, and wait until it is gone."""
        _kill(self.base / f"{daemon}.pid", number)

    def lose(self, node: str) -> None:
        """Take a node away with all that runs on it."""
        jobs = [pid for pid in _running() if f"SLURMD_NODENAME={node}" in _environment(pid)]
        keepers = {_parent(pid) for pid in jobs} - {None, 1}
        self.kill(node)
        for pid in [*keepers, *jobs]:
            _send(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop every daemon of this cluster, and the jobs that still run on it."""
        _stop(self.base)
        if self.mariadb:
            self.mariadb.terminate()
            self.mariadb.wait()
        shutil.rmtree(self.base, ignore_errors=True)

    def held(self) -> list[Held]:
        """What every finished job held."""
        started, found = {}, []
        for line in (self.base / "held.log").read_text().splitlines():
            event, when, job, node, partition, gpus = line.split()
            if event == "started":
                started[job] = (float(when), frozenset() if gpus == "-" else frozenset(gpus.split(",")))
            else:
                start, gpus = started[job]
                found.append(Held(job, node, partition, gpus, start, float(when)))
        return found


def _stop(base: Path) -> None:
    """Stop the daemons whose files are in `base`, and the jobs that still run on them."""
    for pid in _running():
        if "SLURM_CLUSTER_NAME=toy" in _environment(pid):
            _send(pid, signal.SIGKILL)
    for file in (*(f"{name}.pid" for name in (*NODES, "controller", "database")), "munge/pid"):
        _kill(base / file, signal.SIGTERM)
    for name in CONFS:
        if (ETC / name).is_symlink() and (ETC / name).readlink() == base / name:
            (ETC / name).unlink()


def _running() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended
        return []


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()[1])
    except OSError:  # it has ended
        return None


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill(file: Path, number: int) -> None:
    if not file.exists():
        return
    pid = int(file.read_text(encoding="utf-8"))
    _send(pid, number)
    until(lambda: not Path(f"/proc/{pid}").exists() or _zombie(pid), f"end of {file.stem}")
    file.unlink(missing_ok=True)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(") ")[1].startswith("Z")
    except OSError:
        return True

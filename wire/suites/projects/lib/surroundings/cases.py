"""What may surround a program, at either end of a conversation, from its start on or from the midst of it on.

Run by the suite `surroundings`: without the library, and with it by LD_PRELOAD. A case has passed if both ends say that every byte
was right, and end by themselves with status 0; with the library also if each connection was accelerated, or has a reason why not.
"""

import contextlib
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

from conversation import ACCELERATED, COUNTERS, END, LIBRARY, PATIENCE, ROLES, Failed, Side, Skipped, converse, counters_of, skip

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2

# The cases: a name, and the function that runs it.
CASES = {}


def case(name, run, fast=False):
    if name in CASES:
        raise ValueError(name)
    CASES[name] = (run, fast)


def on_each_side(name, make, fast=False, **others):
    for role in ROLES:
        case(f"{name}, {role}", lambda role=role: converse({role: make()}, **others), fast)


def nothing():
    converse({})
    if ACCELERATED and COUNTERS:
        carried = 0
        for path in counters_of(None):
            with open(path, encoding="utf-8") as file:
                carried += json.load(file)["bytes"]["rx_ring"]
        if not carried:
            raise Failed("no byte came by the ring where nothing keeps it off")


case("nothing", nothing, fast=True)

# Limits. From the start, a program needs more of each: for its libraries, and its descriptors.

LIMITS = {
    "fsize": (("0", "4096", "3000000"), ("0", "4096", "3000000")),
    "nofile": (("9", "12", "24"), ("1", "6", "24")),
    "as": (("12000000", "20000000", "60000000"), ("0", "20000000")),
    "data": (("4000000", "8000000"), ("0", "2000000")),
    "memlock": (("0",), ("0",)),
    "stack": (("65536", "1000000"), ("65536",)),
    "nproc": (("0",), ("0",)),
}


def limits():
    for name, (starts, midsts) in LIMITS.items():
        for value in starts:
                    on_each_side(f"limit {name}={value} from the start on",
                         lambda name=name, value=value: Side(["prlimit", f"--{name}={value}:{value}", "--"], silent=name == "fsize"),
                         fast=value == starts[0])
        for value in midsts:
            on_each_side(f"limit {name}={value} in the midst",
                         lambda name=name, value=value: Side(orders=[f"limit {name} {value}", "alone"], silent=True),
                         fast=value == midsts[0])


limits()


def group(bytes_):
    """A control group with this much memory, as a prefix that enters it; or None where none can be made."""
    for place, name in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        directory = os.path.join(place, f"seekwire-surroundings-{os.getpid()}-{bytes_}")
        try:
            os.mkdir(directory)
            # Without the controller, opening would create a file that limits nothing.
            with open(os.path.join(directory, name), "r+", encoding="ascii") as file:
                file.write(str(bytes_))
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
            continue
        return directory
    return None


def in_group(bytes_, role):
    directory = group(bytes_)
    if directory is None:
        skip("no control group can be made")
    enter = f'echo $$ >{directory}/cgroup.procs && exec "$@"'
    try:
        converse({role: Side(["sh", "-c", enter, "sh"])})
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


for role_ in ROLES:
    case(f"control group with 24 MB, {role_}", lambda role=role_: in_group(24 << 20, role))

# Directories: of the registry, of shared memory, of /proc. Each case has them in a file system of its own.


@contextlib.contextmanager
def file_system(options, place=None):
    place = place or os.path.join(os.getcwd(), f"place.{len(os.listdir('.'))}")
    os.makedirs(place, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield place
    finally:
        # umount(8) would not find a hidden /proc.
        if LIBC.umount2(place.encode(), MNT_DETACH):
            raise OSError(ctypes.get_errno(), place)


def fill(place):
    with contextlib.suppress(OSError), open(os.path.join(place, "filler"), "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def remount(options):
    # The kernel refuses this, so that the case does not apply, while a file is open for writing.
    return lambda place: subprocess.run(["mount", "-o", f"remount,{options}", place], check=False, stderr=subprocess.DEVNULL)


def remove(place):
    for entry in os.listdir(place):
        path = os.path.join(place, entry)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def registry(options, change, when, default=False):
    """`change` is done to the file system of the registry at one of the moments of a conversation."""
    with file_system(options, "/dev/shm" if default else None) as place:
        directory = place if default else os.path.join(place, "registry")
        environment = {"SEEKWIRE_DIR": None, "XDG_RUNTIME_DIR": None} if default else {"SEEKWIRE_DIR": directory}
        sides = {role: Side(environment=environment) for role in ROLES}
        moments = {when: lambda: change(place)}
        if when == "before":
            moments.pop("before")()
        converse(sides, **moments)


CHANGES = {
    "full": ("size=16m,mode=1777", fill),
    "nearly full": ("size=4200k,mode=1777", lambda place: None),
    "without inodes": ("nr_inodes=2,mode=1777", lambda place: None),
    "read-only": ("mode=1777", remount("ro")),
    "noexec": ("mode=1777", remount("noexec,nosuid,nodev")),
    "emptied": ("mode=1777", remove),
}
for name_, (options_, change_) in CHANGES.items():
    for moment_, word_ in (("before", "from the start on"), ("between", "before the client starts"), ("midst", "in the midst")):
        if moment_ != "before" and name_ in ("nearly full", "without inodes"):
            continue
        for default_ in (False, True):
            case(f"{'default' if default_ else 'named'} directory {name_} {word_}",
                 lambda o=options_, c=change_, m=moment_, d=default_: registry(o, c, m, d), fast=name_ == "full")


def named(value, make=None):
    def run():
        if make:
            make(value)
        converse({role: Side(environment={"SEEKWIRE_DIR": value}) for role in ROLES})
    return run


def touch(path):
    open(path, "w", encoding="ascii").close()


case("directory below a missing one", named("/nonexistent/seekwire"))
case("directory that is a file", named("file", touch))
case("directory that others may write to", named("open", lambda path: (os.makedirs(path, exist_ok=True), os.chmod(path, 0o777))))
case("directory of a long name", named("/tmp/" + "long" * 40))
case("directory without a name", named(""))


def hidden(place, run):
    """A place of the system is empty."""
    def covered():
        with file_system("mode=755", place):
            run()
    return covered


case("empty /proc", hidden("/proc", lambda: converse({role: Side(silent=True) for role in ROLES})))
case("empty /sys", hidden("/sys", lambda: converse({})))
case("empty /tmp", hidden("/tmp", lambda: converse({})) if not os.getcwd().startswith("/tmp") else lambda: skip("the case itself is there"))


# System call filters, as in sandboxes.

CALLS = ("memfd_create", "eventfd2", "socketpair", "sendmsg", "recvmsg", "epoll_create1,epoll_ctl", "pidfd_open", "futex", "bind",
         "ftruncate,fallocate", "kcmp", "getdents64", "getrandom", "clone", "unlinkat", "ppoll", "prlimit64", "ioctl", "openat", "mmap",
         "fcntl", "getsockopt", "rt_sigprocmask", "readlinkat,newfstatat")
# Without these calls no program starts, or no connection is made, with or without the library.
LATE = {"openat", "mmap", "epoll_create1,epoll_ctl", "prlimit64", "getrandom", "readlinkat,newfstatat", "rt_sigprocmask", "bind"}

for calls_ in CALLS:
    for action_ in ("kill", "errno", "trap"):
        filter_ = f"{action_}:{calls_}"
        if calls_ not in LATE:
            on_each_side(f"filter {filter_} from the start on",
                         lambda f=filter_: Side([END, "filter", f], silent=True), fast=filter_ == "kill:memfd_create")
        on_each_side(f"filter {filter_} in the midst",
                     lambda f=filter_: Side(orders=[f"filter {f}", "alone"], silent=True), fast=filter_ == "kill:eventfd2")
for action_ in ("kill", "errno", "trap"):
    on_each_side(f"filter {action_} of all but the conversation's own calls in the midst",
                 lambda a=action_: Side(orders=[f"filter {a}:only", "alone"], silent=True), fast=action_ == "kill")

# Tools that run a program, or attach to a running one.


def tool(name, prefix, environment=None, fast=False, needs=None, silent=False):
    def make():
        if not shutil.which(needs or prefix[0]):
            skip(f"{needs or prefix[0]} is not installed")
        return Side(prefix, environment=environment, silent=silent)
    on_each_side(name, make, fast)


for checker_ in ("memcheck", "helgrind", "drd", "callgrind", "none"):
    extra_ = {"memcheck": ["--error-exitcode=9"], "callgrind": ["--callgrind-out-file=callgrind.%p"]}.get(checker_, [])
    tool(f"valgrind {checker_}", ["valgrind", "-q", f"--tool={checker_}", *extra_], fast=checker_ == "memcheck")
tool("gdb", ["gdb", "-q", "-nx", "-batch", "-return-child-result", "-ex", "run", "--args"])
tool("strace", ["strace", "-f", "-o", "strace.out"], fast=True)
tool("perf record", ["perf", "record", "-q", "-e", "cpu-clock", "-o", "perf.out", "--"], needs="perf")
tool("setarch without random addresses", ["setarch", "-R"])
tool("stdbuf", ["stdbuf", "-oL"])
tool("nice, idle", ["chrt", "--idle", "0"])
tool("one CPU", ["taskset", "-c", "0"])


def attached(arguments, ready=None):
    """Attaches a tool to the process, and waits until it says that it is there."""
    def midst(pid):
        if not shutil.which(arguments[0]):
            skip(f"{arguments[0]} is not installed")
        command = [argument.replace("PID", str(pid)) for argument in arguments]
        if ready is None:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            if result.returncode:
                raise Failed(f"{arguments[0]}: {result.stderr}")
            return None
        tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while ready not in (line := tracer.stderr.readline()):
            if not line:
                skip(f"{arguments[0]} cannot attach")
        threading.Thread(target=tracer.stderr.read, daemon=True).start()

        def leave():
            tracer.terminate()
            tracer.wait()
        return leave
    return midst


for name_, arguments_, ready_ in (
        ("gdb", ["gdb", "-q", "-nx", "-batch", "-p", "PID", "-ex", "bt", "-ex", "detach"], None),
        ("strace", ["strace", "-f", "-o", "strace.late", "-p", "PID"], "attached")):
    on_each_side(f"{name_} attached in the midst", lambda a=arguments_, r=ready_: Side(midst=attached(a, r)))


def stopped(pid):
    """As by ^Z and fg."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    os.kill(pid, signal.SIGCONT)


on_each_side("stopped and continued in the midst", lambda: Side(midst=stopped))

# Sanitizers, whose runtime must be the first library.


def sanitized(name):
    def make():
        program = os.path.join(os.environ["CACHE"], f"end-{name}")
        if not os.path.exists(program):
            skip(f"the compiler has no -fsanitize={name}")
        environment = {}
        runtime = {"address": "libasan.so", "thread": "libtsan.so", "undefined": "libubsan.so"}[name]
        if LIBRARY:
            path = subprocess.run(["gcc", f"-print-file-name={runtime}"], env={**os.environ, "LD_PRELOAD": ""}, check=True,
                                  capture_output=True, text=True).stdout.strip()
            environment["LD_PRELOAD"] = f"{os.path.realpath(path)}:{LIBRARY}"
        # If addresses are too random, TSan restarts itself; older versions fail.
        return Side(["setarch", "-R"] if name == "thread" else [], environment=environment, program=program)
    return make


for name_ in ("address", "thread", "undefined"):
    on_each_side(f"{name_} sanitizer", sanitized(name_), fast=name_ == "address")

# Other libraries that are preloaded.


def preloaded(library, before):
    def make():
        found = [path for pattern in ("/usr/lib/*/", "/usr/lib/*/faketime/", "/usr/libexec/coreutils/", "/usr/lib/*/coreutils/")
                 for path in glob.glob(pattern + library)]
        if not found:
            skip(f"{library} is not installed")
        both = [found[0], LIBRARY] if before else [LIBRARY, found[0]]
        return Side(environment={"LD_PRELOAD": ":".join(path for path in both if path)})
    return make


for library_ in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0", "libeatmydata.so", "libfaketime.so.1"):
    for before_ in (True, False):
        on_each_side(f"{library_} preloaded {'before' if before_ else 'behind'}", preloaded(library_, before_),
                     fast=library_.startswith("libjemalloc") and before_)


def main():
    only = None
    if os.environ.get("ONLY"):
        with open(os.environ["ONLY"], encoding="utf-8") as file:
            only = set(file.read().splitlines())
    if len(sys.argv) > 1:
        only = {name for name in CASES if any(word in name for word in sys.argv[1:])}
    with open(os.environ["RESULTS"], "a", encoding="utf-8") as results:
        for name, (run, fast) in CASES.items():
            if only is not None and name not in only or only is None and os.environ.get("FAST") and not fast:
                continue
            try:
                run()
                outcome = "passed"
            except Skipped as why:
                outcome = "skipped"
                print(f"{name}: skipped: {why}", flush=True)
            except Exception as why:  # Whatever it is, the next cases are to run.
                outcome = "failed"
                print(f"{name}: {type(why).__name__}: {why}", flush=True)
            print(f"{outcome}\t{name}", file=results, flush=True)


if __name__ == "__main__":
    main()

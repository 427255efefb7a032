# SPDX-License-Identifier: Apache-2.0
"""Which library functions can fail, and where the programs call them."""

import collections
import errno
import os
import pathlib
import re
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = ("rdcp", "rdsend", "rdrecv", "rdbench", "rdcheck", "rdcpd")
PROCESSES, ENTRIES, STACKS = 32, 4096, 8192     # as in every_call.c
HEAD, PROCESS, ENTRY, STACK = (struct.Struct("=" + s) for s in ("IIII", "48sI12x", "QII", "QQII"))
SHARED = HEAD.size + PROCESSES * (PROCESS.size + ENTRIES * ENTRY.size + STACKS * STACK.size)

Call = collections.namedtuple("Call", "number name result errnos way")


def calls():
    """{name: Call} of calls.h."""
    found = {}
    for name, result, errnos, way in re.findall(
            r'^CALL\((\w+), (\w+), "([^"]*)", (\w+)\)$', (HERE / "calls.h").read_text(), re.M):
        found[name] = Call(len(found), name, result, errnos.split(), way)
    return found


CALLS = calls()
POINTER = "*"       # a call through a pointer
BY_NUMBER = list(CALLS.values())


def exempt():
    """{name: reason}"""
    found, reason = {}, None
    for line in (HERE / "exempt").read_text().splitlines():
        if line.startswith("#"):
            continue
        if line.endswith(":"):
            reason = line[:-1]
        else:
            found.update((n, reason) for n in line.split())
    return found


def undefined(program):
    out = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    return {n for n in names if not n.startswith("__asan_")}


def forgotten(bin_):
    """(functions of src/ that neither list has, those that both have, all that src/ calls, {exempt: reason})"""
    wanted = set().union(*(undefined(bin_ / p) for p in PROGRAMS))
    free = exempt()
    return sorted(wanted - set(CALLS) - set(free)), sorted(set(CALLS) & set(free)), wanted, free


def number_of(kind):
    """The number in SWEEP_PLAN for a KIND: the name of an errno, a number, or "short"."""
    if kind == "short":
        return 0
    return getattr(errno, kind, None) or int(kind)


class Sites:
    """The call sites of one program, by return address and by name. A name is FILE:FUNCTION:CALL#K: the K-th line of
    that function with such a call. Names stay the same between builds."""

    def __init__(self, program):
        self.program = str(program)
        self.by_address, self.by_name = {}, collections.defaultdict(list)
        self.places = {}        # name: FILE:LINE
        self._add(self._found())

    def _found(self):
        """[(return address, call)]"""
        out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", self.program], capture_output=True, text=True,
                             check=True).stdout
        found, last = [], None
        for line in out.splitlines():
            m = re.match(r"\s+([0-9a-f]+):\t(.*)", line)
            if not m:
                continue
            if last:
                found.append((int(m[1], 16), last))
            call = re.match(r"(?:call|bl)\s.*<(\w+)@", m[2])
            last = call[1] if call and call[1] in CALLS else None
            if re.match(r"call\s+\*|blr\s", m[2]):
                last = POINTER
        return found

    def _symbolized(self, addresses):
        """(file, line, function, inline function) of the call before each address. If functions of src/ are inlined,
        it is the innermost one. The last is the function of verbs.h, if the call is by one."""
        tool = ["llvm-symbolizer", "-e", self.program, "--output-style=LLVM", "--inlines"]
        out = subprocess.run(tool, input="".join("0x%x\n" % (a - 1) for a in addresses), capture_output=True, text=True,
                             check=True).stdout
        for block in out.split("\n\n"):
            lines = block.strip().splitlines()
            # Inline functions of <bits/...> (_FORTIFY_SOURCE) do not count.
            frames = [(f, *at.rsplit(":", 2)[:2]) for f, at in zip(lines[::2], lines[1::2])]
            own = [f for f in frames if "/usr/" not in f[1]] or frames
            if own:
                inline = frames[0][0] if frames[0][1].endswith("/infiniband/verbs.h") else None
                yield own[0][1], int(own[0][2]), own[0][0].split(".")[0], inline

    def _add(self, found):
        lines = collections.defaultdict(set)
        rows = []
        for (address, call), (file, line, function, inline) in zip(found, self._symbolized([a for a, _ in found])):
            if call == POINTER:
                call = inline
            if call not in CALLS:
                continue
            file = re.sub(r"^.*/src/", "", file)
            rows.append((address, call, file, line, function))
            lines[file, function, call].add(line)
        for address, call, file, line, function in rows:
            nth = sorted(lines[file, function, call]).index(line) + 1
            name = "%s:%s:%s#%d" % (file, function, call, nth)
            self.by_address[address, call] = name
            self.by_name[name].append(address)
            self.places[name] = "%s:%d" % (file, line)

    def name(self, address, call):
        """The name of a site; None for a tail call of a library (reallocarray to realloc). A call through a pointer
        is not in the tables yet, so this adds it."""
        if (address, call) not in self.by_address:
            if any((address, other) in self.by_address for other in ("reallocarray", "strdup", "strndup")):
                return None
            (file, line, function, _), = self._symbolized([address])
            name = "%s:%s:%s@%d" % (re.sub(r"^.*/src/", "", file), function, call, line)
            self.by_address[address, call] = name
            self.by_name[name].append(address)
            self.places[name] = "%s:%d" % (name.split(":")[0], line)
        return self.by_address[address, call]


class Book:
    """The sites of all programs of a build."""

    def __init__(self, bin_):
        self.programs = {p: Sites(bin_ / p) for p in PROGRAMS}

    def of(self, role):
        return self.programs[re.match(r"rd[a-z]+", role)[0]]

    def all(self):
        """{name: FILE:LINE}"""
        found = {}
        for s in self.programs.values():
            found.update(s.places)
        return found


def used(table, row):
    """The rows of a table that begin with a number other than 0. Most are 0, so that unpacking all would take longer than
    some runs."""
    firsts = memoryview(table).cast("Q")[::row.size // 8].tolist()
    return [row.unpack_from(table, n * row.size) for n, first in enumerate(firsts) if first]


class Record:
    """What the processes of a run did. injected: the number of failures; counts: {(role, name): number of calls}. A name
    ends with ">CALL" if a library made the call. firsts: {(role, name): {number of the first allocation on a stack}}."""

    def __init__(self, path, book):
        self.counts, self.firsts = collections.Counter(), collections.defaultdict(set)
        with open(path, "rb") as f:
            processes, _, self.injected, _ = HEAD.unpack(f.read(HEAD.size))
            for _ in range(min(processes, PROCESSES)):
                role, full = PROCESS.unpack(f.read(PROCESS.size))
                entries, stacks = (used(f.read(n * row.size), row) for n, row in ((ENTRIES, ENTRY), (STACKS, STACK)))
                role = role.rstrip(b"\0").decode()
                if full:
                    raise RuntimeError("%s has more call sites or stacks than there is room for" % role)
                if role:
                    self._add(role, book.of(role), entries, stacks)

    def _add(self, role, sites, entries, stacks):
        for key, count, by in entries:
            name = self._name(sites, key, by)
            if name:
                self.counts[role, name] += count
        for _, key, n, by in stacks:
            name = self._name(sites, key, by)
            if name:
                self.firsts[role, name].add(n)

    @staticmethod
    def _name(sites, key, by):
        call = BY_NUMBER[(key & 0xffff) >> 1].name
        if not key & 1:
            return sites.name(key >> 16, call)
        name = sites.name(key >> 16, BY_NUMBER[by - 1].name)
        return name and name + ">" + call


# What a simulated adapter can be ordered to do (tests/simverbs/order.h): enum ibv_wc_status, enum rdma_cm_event_type.
STATUSES = {"LOC_PROT": 4, "WR_FLUSH": 5, "REM_ACCESS": 10, "REM_OP": 11, "RETRY_EXC": 12, "RNR_RETRY_EXC": 13, "GENERAL": 21}
CM_EVENTS = {name: n for n, name in enumerate(
    "ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR UNREACHABLE REJECTED "
    "ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE TIMEWAIT_EXIT".split())}


class Point:
    """One call that fails: SCENARIO ROLE SITE N KIND. If KIND ends with a +, all later calls fail too.

    Or what a simulated adapter does. SITE is then
    simverbs:status             the N-th send completes with the status KIND
    simverbs:event:NAME         the N-th event NAME is another, KIND is EVENT or EVENT/STATUS
    simverbs:lose:MESSAGE       the N-th message of the connection manager is lost
    simverbs:async:NAME         this asynchronous event comes with the N-th send
    simverbs:silent             the adapter is silent from the N-th send on"""

    def __init__(self, scenario, role, site, n, kind):
        self.scenario, self.role, self.site, self.n = scenario, role, site, int(n)
        self.kind, self.lasting = kind.rstrip("+"), kind.endswith("+")

    @classmethod
    def parse(cls, line):
        return cls(*line.split())

    def __str__(self):
        return "%s %s %s %d %s%s" % (self.scenario, self.role, self.site, self.n, self.kind, "+" * self.lasting)

    @property
    def call(self):
        """The function that fails."""
        name = self.site.rsplit(":", 1)[1]
        return name.split(">")[1] if ">" in name else re.split("[#@]", name)[0]

    @property
    def library(self):
        return ">" in self.site

    @property
    def ordered(self):
        return self.site.startswith("simverbs:")

    @property
    def about_verbs(self):
        return self.ordered or bool(re.match(r"_*ibv_|rdma_", self.call))

    def order(self):
        """The rule of SIMVERBS_FAULT."""
        what = self.site.split(":", 1)[1]
        n = 0 if self.lasting else self.n
        if what == "status":
            return "status:n=%d,is=%d" % (n, STATUSES[self.kind])
        if what == "silent":
            return "silent:n=%d" % n
        words = "%s,n=%d" % (what, n)
        if what.startswith("event:"):
            event, _, status = self.kind.partition("/")
            words += ",as=%d,status=%d" % (CM_EVENTS[event], int(status or 0))
        return words

    def environment(self, book):
        """The environment that makes the call fail. None: no program has the site."""
        if self.ordered:
            return {"SWEEP_ORDER": "%s %s" % (self.role, self.order())}
        plan = self.plan(book)
        return plan and {"SWEEP_PLAN": plan}

    def plan(self, book):
        addresses = book.of(self.role).by_name.get(self.site.split(">")[0])
        if not addresses:
            return None
        return " ".join([self.role, str(CALLS[self.call].number), str(int(self.library)), str(number_of(self.kind)),
                         str(self.n), str(int(self.lasting)), *("%x" % a for a in addresses)])


def scratch():
    return os.environ.get("SLUICE_SWEEP_DIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)

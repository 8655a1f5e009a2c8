"""Compares two runs of PostgreSQL's regression tests, with heap and with shuffle tables.

usage: regression_classify.py SQLDIR HEAP SHUFFLE HEAPLOG SHUFFLELOG TEST...

Result files are cut into statements along the lines of the test's SQL file, which psql -a
echoes.  A statement with another result is

  refused    by shuffle, with one of the errors in REFUSALS;
  follows    from such a statement: the transaction is aborted, or what it names (or what
             that was made from) was not made or written as it would have been;
  internal   about what is inside of a table: plans, sizes, TIDs, access methods;
  order      the same lines in another order, or the same error in other words;

and otherwise unexplained.  Unexplained results, errors of class XX that heap does not
raise, crashes and failed assertions make the run fail.
"""
import collections
import re
import sys

REFUSALS = re.compile("|".join([
    r"shuffle tables cannot be (temporary|unlogged)",
    r"shuffle tables have no system column",
    r"(not supported|cannot \w+ rows) (for|of|on) shuffle table",
    r"but shuffle tables cannot be replicated",
    r"has no exact Arrow form",
    r"has no UTF-8 form",
    r"cannot (use|read|write).* shuffle table",
    r"UNIQUE|replica identity",
    r"(relation|index|constraint|column|table|view|materialized view|trigger|rule|policy|type|"
    r"publication|statistics object|operator class) (\"[^\"]*\" )?(for .*|of .*)?does not exist.*",
]))
# Where deferred triggers fire.
ENDS = re.compile(r"\s*(commit|end)\b", re.I)
ABORTED = "current transaction is aborted"
INTERNAL = re.compile(
    r"\bexplain\b|ctid|currtid|\bxmin\b|\bcmin\b|\bxmax\b|tidscan|relfilenode|filepath|pg_relation_|_size\(|"
    r"pg_stat|relpages|reltuples|pg_am\b|amname|access method|tablesample|pg_class|pg_depend|"
    r"pg_index|pg_toast|reltoast|pg_proc\b|pg_opclass|obj_description|pg_buffercache|toast|"
    r"pg_column_compression|pg_attribute|pg_seclabel|pg_locks|vacuum|analyze|cluster|reindex|"
    r"^\\d|pg_event_trigger|pg_get_object|pg_lock_status|pg_constraint|pg_extension|"
    r"information_schema|io_sum_|debug_parallel|pg_typeof|pg_prepared_xacts|^show\b", re.I)
NAME = r'(?:"[^"]+"|[\w.:\'$]+)'
MADE = re.compile(
    r"\b(?:insert\s+into|update|delete\s+from|merge\s+into|copy|truncate|into|table|view|index|"
    r"function|procedure|trigger|rule|sequence|type|domain|schema|declare|prepare|policy|"
    r"publication|statistics|aggregate|cast|operator|do)\s+"
    r"(?:(?:if\s+not\s+exists|if\s+exists|only|concurrently|or\s+replace|table)\s+)*"
    r"(" + NAME + ")", re.I)
WORD = re.compile(r"[\w$]+")
CHATTER = re.compile(r"^(LINE \d+:|\s*\^$|HINT:|DETAIL:|CONTEXT:|NOTICE:|drop cascades to|"
                     r"PL/pgSQL function|SQL statement|SQL function|INFO:|\(\d+ rows?\)$)")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line for line in file.read().split("\n") if line.strip()]
    except FileNotFoundError:
        return []


def outputs(sql, result):
    """Lines that psql printed, by the number of the SQL line that they come after."""
    found = collections.defaultdict(list)
    at = 0
    for line in result:
        if at < len(sql) and line == sql[at]:
            at += 1
            continue
        if (at > 0 and re.match(r"\\?copy\b.*\bfrom\s+(stdin|std)", sql[at - 1], re.I)
                and not found[at]):
            # its data is not echoed, unless it was refused
            end = next((i for i in range(at, len(sql)) if sql[i] == "\\."), None)
            if end is not None and end + 1 < len(sql) and line == sql[end + 1]:
                at = end + 2
                continue
        # what was passed over: the echo of a line that \gset and the like have changed
        ahead = next((i for i in range(at, min(at + 400, len(sql))) if sql[i] == line), None)
        if ahead is not None and len(line) > 12:
            at = ahead + 1
            continue
        if line.strip():
            found[at].append(line.rstrip())
    return found


def statement_at(sql, at):
    """The statement that ends on line number at."""
    first = at - 1
    while first > 0 and not re.search(r";\s*(--.*)?$", sql[first - 1]) and at - first < 60:
        if sql[first - 1].startswith("\\"):
            break
        first -= 1
    lines = [line for line in sql[first:at] if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip()


class Taint:
    """Names whose contents may not be what they would be with heap."""

    def __init__(self):
        self.names = set()
        self.sources = collections.defaultdict(set)

    @staticmethod
    def written(statement):
        names = set()
        for match in MADE.finditer(statement):
            names.add(re.split(r"[.:]", match.group(1).lower())[-1].strip("\"'"))
        return names - set("select from set with on if all as is row (".split()) - {""}

    def learn(self, statement):
        variable = re.match(r"\\set (\w+)", statement)
        words = {word.lower() for word in WORD.findall(statement)}
        if variable:
            self.sources[variable.group(1).lower()] |= words
        if re.search(r"\b(create|declare|prepare|insert|copy|alter|select\b.*\binto)\b",
                     statement, re.I | re.S):
            for name in self.written(statement):
                self.sources[name] |= words - {name}

    def add(self, names):
        self.names |= names

    def touches(self, statement):
        seen = set()
        todo = [word.lower() for word in WORD.findall(statement)]
        while todo:
            word = todo.pop()
            if word in self.names:
                return True
            if word not in seen:
                seen.add(word)
                todo.extend(self.sources.get(word, ()))
        return False


def compare(test, sqldir, heapdir, shuffledir, taint, counts, unexplained):
    sql = read(f"{sqldir}/{test}.sql")
    heap = outputs(sql, read(f"{heapdir}/{test}.out"))
    shuffle = outputs(sql, read(f"{shuffledir}/{test}.out"))
    in_transaction = set()
    refused_in_transaction = False
    echo = set(sql)
    learnt = 0
    for at in range(1, len(sql) + 1):
        ends = re.search(r";|^\\", sql[at - 1])
        if not ends and at not in heap and at not in shuffle:
            continue
        statement = statement_at(sql, at)
        if at != learnt:
            taint.learn(statement)
            learnt = at
        if re.match(r"\s*(begin|start)\b", statement, re.I):
            in_transaction = set()
            refused_in_transaction = False
        # after an error this says no more than ROLLBACK: what it names is not there
        prepared = re.match(r"\s*prepare\s+transaction\s+'(\w+)'", statement, re.I)
        if prepared and refused_in_transaction:
            taint.add({prepared.group(1).lower()})
        in_transaction |= taint.written(statement)
        counts["statements"] += 1
        if heap[at] == shuffle[at]:
            continue
        said = "\n".join(shuffle[at])
        # a line of the file after a line that only one run has printed is an echo
        plain = [[line for line in lines if not CHATTER.match(line) and line not in echo]
                 for lines in (heap[at], shuffle[at])]
        if plain[0] == plain[1] or \
                plain[0] and plain[1] and plain[0][0] == plain[1][0] and "ERROR: " in plain[0][0]:
            counts["order"] += 1
            continue
        if REFUSALS.search(said) and REFUSALS.search(said).group(0) not in "\n".join(heap[at]):
            kind = "refused"
            refused_in_transaction = True
            taint.add(in_transaction)
        elif "duplicate key value violates unique" in "\n".join(heap[at]):
            kind = "follows"    # from a constraint that was refused
            taint.add(taint.written(statement))
        elif (ABORTED in said or ABORTED in "\n".join(heap[at])
              or taint.touches(statement)):
            kind = "follows"
            taint.add(taint.written(statement))
        elif refused_in_transaction and ENDS.match(statement):
            kind = "follows"
        elif sorted(plain[0]) == sorted(plain[1]):
            kind = "order"
        elif INTERNAL.search(statement) or plain[0] and plain[0][0].strip() == "ctid":
            kind = "internal"
        else:
            kind = "unexplained"
            unexplained.append((test, at, statement, heap[at], shuffle[at]))
        counts[kind] += 1


def internal_errors(path):
    return {re.sub(r"\d+", "N", line[line.index(":  XX") + 3:].strip())
            for line in read(path) if re.search(r"(ERROR|FATAL|PANIC):  XX", line)}


def main():
    sqldir, heapdir, shuffledir, heaplog, shufflelog = sys.argv[1:6]
    taint, counts, unexplained = Taint(), collections.Counter(), []
    for test in sys.argv[6:]:
        compare(test, sqldir, heapdir, shuffledir, taint, counts, unexplained)
    for test, at, statement, heap, shuffle in unexplained:
        print(f"---- {test}, line {at}\n{statement}\n  heap:")
        print("\n".join("    " + line for line in heap[:12]))
        print("  shuffle:")
        print("\n".join("    " + line for line in shuffle[:12]))
    # raised by the planner for operators of the tests, depending on what indexes there are
    allowed = {"XXN: could not find commutator for operator N"}
    errors = sorted(internal_errors(shufflelog) - internal_errors(heaplog) - allowed)
    crashes = [line for line in read(shufflelog)
               if re.search(r"TRAP:|terminated by signal|PANIC:|Failed process was", line)]
    for line in errors + crashes:
        print(line)
    print(", ".join(f"{counts[kind]} {kind}" for kind in
                    ("statements", "refused", "follows", "internal", "order")), end="")
    print(f", {len(unexplained)} unexplained, {len(errors)} internal errors, "
          f"{len(crashes)} lines of crashes")
    return 1 if unexplained or errors or crashes else 0


if __name__ == "__main__":
    sys.exit(main())

"""Report of matrix.sh: a block of metrics per configuration, a table, and a CSV file.

usage: matrix_report.py RUNS [CSV]

RUNS has one tab-separated line per run: partitions, codec, processes asked for, memory
limit, seconds, processes that wrote, and the columns of shuffle_write_stats() with all
processes together.
"""
import csv
import statistics
import sys

FIELDS = ("partitions codec asked memory_limit seconds processes process segments rows raw_bytes "
          "stored_bytes blocks runs memory_peak elapsed input repartition interleave encode write "
          "sync queue").split()
PHASES = "input repartition interleave encode write sync queue".split()


def read_runs(path):
    """Runs by configuration, both in the order of their first run."""
    configurations = {}
    with open(path) as lines:
        for line in lines:
            run = dict(zip(FIELDS, line.rstrip("\n").split("\t"), strict=True))
            key = tuple(run[name] for name in ("partitions", "codec", "asked", "memory_limit"))
            configurations.setdefault(key, []).append(run)
    return configurations


def median(runs, name):
    return statistics.median(float(run[name]) for run in runs)


def size(n):
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"


def print_block(key, runs):
    partitions, codec, asked, memory_limit = key
    seconds = [float(run["seconds"]) for run in runs]
    rows, raw, stored = (median(runs, name) for name in ("rows", "raw_bytes", "stored_bytes"))
    middle = statistics.median(seconds)
    print(f"\n=== {int(partitions):,} partitions, codec {codec}, {asked} process"
          f"{'' if asked == '1' else 'es'}, memory limit {memory_limit} ===")
    print(f"  write time    {middle:.3f} s median  ({statistics.mean(seconds):.3f} avg, "
          f"{min(seconds):.3f} min, {max(seconds):.3f} max, {len(seconds)} iterations)")
    print(f"  throughput    {rows / middle / 1e6:.2f} M rows/s, {size(raw / middle)}/s")
    print(f"  output        {size(stored)}, {raw / max(stored, 1):.2f}x smaller than {size(raw)}; "
          f"{median(runs, 'blocks'):,.0f} blocks of "
          f"{rows / max(median(runs, 'blocks'), 1):,.0f} rows in {median(runs, 'runs'):,.0f} runs")
    print(f"  peak memory   {size(median(runs, 'memory_peak'))}, {median(runs, 'processes'):.0f} "
          "processes together")
    total = sum(median(runs, phase) for phase in PHASES)
    print("  metrics       " + "seconds of all processes, and share")
    for phase in PHASES:
        value = median(runs, phase)
        if value > 0:
            print(f"    {phase:<12}{value / 1000:9.3f} s {100 * value / total:5.1f} %")


def main():
    configurations = read_runs(sys.argv[1])
    for key, runs in configurations.items():
        print_block(key, runs)

    header = ["partitions", "codec", "processes", "memory_limit", "median_s", "min_s", "max_s",
              "x_of_200", "rows_per_s", "rows", "raw_bytes", "stored_bytes", "blocks", "runs",
              "memory_peak"] + [f"{phase}_s" for phase in PHASES]
    table = []
    for key, runs in configurations.items():
        seconds = [float(run["seconds"]) for run in runs]
        base = configurations.get(("200",) + key[1:])
        # Runs of one round are neighbours in time: pairs, then the median of their ratios.
        pairs = [s / float(b["seconds"]) for s, b in zip(seconds, base)] if base else []
        middle = statistics.median(seconds)
        table.append([*key, middle, min(seconds), max(seconds),
                      statistics.median(pairs) if pairs else "", median(runs, "rows") / middle,
                      *(int(median(runs, name)) for name in
                        ("rows", "raw_bytes", "stored_bytes", "blocks", "runs", "memory_peak")),
                      *(median(runs, phase) / 1000 for phase in PHASES)])

    print(f"\n{'partitions':>10} {'codec':>8} {'processes':>9} {'limit':>8} {'median s':>9} "
          f"{'x of 200':>8} {'M rows/s':>8} {'stored':>11} {'blocks':>9}")
    for line in table:
        ratio = f"{line[7]:.3f}" if line[7] != "" else ""
        print(f"{int(line[0]):>10,} {line[1]:>8} {line[2]:>9} {line[3]:>8} {line[4]:>9.3f} "
              f"{ratio:>8} {line[8] / 1e6:>8.2f} {size(line[11]):>11} {line[12]:>9,}")

    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(header)
            writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in line]
                             for line in table)


main()

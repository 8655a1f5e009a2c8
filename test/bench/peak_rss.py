"""peak_rss.py POSTMASTER_PID COMMAND...: runs the command and prints, in MB, the highest
anonymous memory (RssAnon) that any one child of the postmaster had meanwhile.

RSS itself would count the shared buffers a process has touched.
"""

import subprocess
import sys
import time


def rss_anon_kb(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def main():
    postmaster = sys.argv[1]
    children = f"/proc/{postmaster}/task/{postmaster}/children"
    peak = 0
    command = subprocess.Popen(sys.argv[2:])
    while command.poll() is None:
        with open(children) as pids:
            peak = max([peak] + [rss_anon_kb(pid) for pid in pids.read().split()])
        time.sleep(0.005)
    print(f"{peak / 1024:.1f}")
    sys.exit(command.returncode)


if __name__ == "__main__":
    main()

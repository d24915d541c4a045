"""The test cloud as a process of its own, which outlives whoever is killed: says where it listens, ends with stdin.

python -m tests.chaos.mci.cloud_process
"""

import sys

from tests.integration.drivers.aws.moto_cloud import MotoCloud

if __name__ == "__main__":
    cloud = MotoCloud()
    sys.stdout.write(f"{cloud.url}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cloud.stop()

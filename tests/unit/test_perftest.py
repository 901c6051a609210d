"""The command line of ib_write_bw and its output, in the words of several versions."""

from __future__ import annotations

import pytest
from fake_perftest import FAILURES, TABLE

from ansible_collections.sparkwright.cluster.plugins.module_utils.perftest import (
    REACH,
    SPEED,
    average_gbits,
    bind_option,
    command_line,
    failure,
    was_refused,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.rdma_schedule import CLIENT, SERVER, Run

SERVER_RUN = Run(0, "rail0", SERVER, "rocep1s0f0", "192.168.100.10", "spark2", "192.168.100.11", 18700)
CLIENT_RUN = Run(0, "rail0", CLIENT, "rocep1s0f0", "192.168.100.11", "spark1", "192.168.100.10", 18700)


@pytest.mark.parametrize(
    ("run", "mode", "bind", "line"),
    [
        (
            SERVER_RUN,
            SPEED,
            "--bind_source_ip",
            "ib_write_bw -d rocep1s0f0 -i 1 -x 3 -p 18700 -s 65536 -D 2 -F --report_gbits --bind_source_ip"
            " 192.168.100.10",
        ),
        (
            CLIENT_RUN,
            SPEED,
            "--source_ip",
            "ib_write_bw -d rocep1s0f0 -i 1 -x 3 -p 18700 -s 65536 -D 2 -F --report_gbits --source_ip 192.168.100.11"
            " 192.168.100.10",
        ),
        (
            CLIENT_RUN,
            REACH,
            None,
            "ib_write_bw -d rocep1s0f0 -i 1 -x 3 -p 18700 -s 65536 -n 100 -u 18 -F --report_gbits 192.168.100.10",
        ),
    ],
    ids=["server", "client of an older version", "reach"],
)
def test_the_command_line(run, mode, bind, line):
    assert command_line(run, 3, 65536, mode, bind) == line.split()


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("      --bind_source_ip  Source IP of the interface", "--bind_source_ip"),
        ("      --source_ip  Source IP of the interface", "--source_ip"),
        ("  -x, --gid-index=<index>", None),
        ("", None),
    ],
)
def test_the_option_that_binds_the_socket_is_the_one_that_the_help_names(text, option):
    assert bind_option(text) == option


def table(*rows, unit="Gb/sec", more=""):
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]{more}\n" + "\n".join(rows)


@pytest.mark.parametrize(
    ("output", "gbits"),
    [
        (TABLE, 92.87),
        (table(" 65536      5000             98.11            97.45\t\t     0.186487"), 97.45),
        (table(" 65536  5000  11030.78  11030.45  0.176487", unit="MiB/sec"), 92.53),
        (table(" 65536  5000  11030.78  11030.45  0.176487", unit="MB/sec"), 92.53),
        (table(" 65536  5000  0.00  97.45  0.18  3.25", more="   CPU_Util[%]"), 97.45),
        (
            table("Conflicting CPU frequency values detected: 5008.1 != 3295.2.", " 65536  5000  0.00  97.45  0.18"),
            97.45,
        ),
        (table(" 2  5000  0.04  0.042  2.6", " 65536  5000  0.00  97.45  0.18"), 97.45),
        (table(" 65536  5000  0.00  -nan  -nan"), None),
        (table(" 65536  5000  inf  inf  inf"), None),
        (table(" 65536  5000  0.00"), None),
        (table(" 65536  5000  0.00  97.45  0.18", unit="furlongs"), None),
        (" 65536  5000  0.00  97.45  0.18", None),
        ("", None),
    ],
    ids=[
        "timed",
        "counted",
        "MiB",
        "MB, which is MiB",
        "a column more",
        "a warning between",
        "the last row counts",
        "nan",
        "inf",
        "a row cut short",
        "an unknown unit",
        "no titles",
        "nothing",
    ],
)
def test_the_average_of_the_table(output, gbits):
    assert average_gbits(output) == gbits


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (
            "Couldn't connect to 192.168.100.11:18700\nUnable to open file descriptor for socket connection\n",
            "nobody listened there (Couldn't connect to 192.168.100.11:18700; Unable to open file descriptor for socket"
            " connection)",
        ),
        (
            FAILURES["rtr"],
            "the device found no way to the peer's GID (Failed to modify QP 1021 to RTR; Unable to Connect the HCA's"
            " through the link)",
        ),
        (
            FAILURES["retries"],
            "the peer acknowledged no write (Completion with error at client; Failed status 12: wr_id 0 syndrom 0x81;"
            " Failed to complete run_iter_bw function successfully)",
        ),
        (
            " Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88\nscnt=1, ccnt=1\n",
            "Completion with error at client; Failed status 10: wr_id 0 syndrom 0x88",
        ),
        (
            "Couldn't listen to port 18700\n",
            "its port is taken (Couldn't listen to port 18700)",
        ),
        (
            "Couldn't allocate MR\nfailed to create mr\n",
            "memory could not be registered for RDMA (Couldn't allocate MR; failed to create mr)",
        ),
        (
            "libibverbs: Warning: couldn't load driver 'libmana-rdmav34.so'\n Port number 1 state is Down\n"
            "Conflicting CPU frequency values detected: 5008.1 != 3295.2. CPU Frequency is not max.\n",
            "Port number 1 state is Down",
        ),
        ("x" * 300, "x" * 200 + " ..."),
        ("", "ib_write_bw ended with status 1 and said nothing"),
    ],
    ids=["refused", "RTR", "retries", "another status", "port", "memory", "noise", "long", "silent"],
)
def test_why_it_failed(errors, reason):
    assert failure("", errors, 1) == reason


def test_the_last_line_of_the_output_counts_when_there_are_no_errors():
    assert failure(f"{TABLE} Port 1 is gone\n{'-' * 80}\n\n", "", 1) == "Port 1 is gone"


@pytest.mark.parametrize(("errors", "refused"), [("Couldn't connect to a:1\n", True), (FAILURES["rtr"], False)])
def test_only_a_refused_connection_is_tried_again(errors, refused):
    assert was_refused(errors) is refused

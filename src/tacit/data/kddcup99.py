"""KDD Cup 99: network connections, normal or attack (Stolfo et al. 1999).

70000 rows of the 10 % file, the number in Kang et al., "Input Perturbation" (arXiv 2002.08570), drawn with a public
seed because the paper does not say which.
"""

import gzip
from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.tabular import Columns, cells, named, tabular

ROWS = 70000
_SEED = 0
_COLUMNS = (
    *("duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment", "urgent"),
    *("hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted", "num_root"),
    *("num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds", "is_host_login", "is_guest_login"),
    *("count", "srv_count", "serror_rate", "srv_serror_rate", "rerror_rate", "srv_rerror_rate", "same_srv_rate"),
    *("diff_srv_rate", "srv_diff_host_rate", "dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate"),
    *("dst_host_diff_srv_rate", "dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate"),
    *("dst_host_serror_rate", "dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate"),
)
# Counts and bytes are unbounded in principle: round numbers that saturate, on a logarithmic scale.
LOGARITHMIC = {
    "duration": (0.0, 100_000.0),
    "src_bytes": (0.0, 1e9),
    "dst_bytes": (0.0, 1e9),
    "hot": (0.0, 1000.0),
    "num_compromised": (0.0, 10_000.0),
    "num_root": (0.0, 10_000.0),
    "num_file_creations": (0.0, 1000.0),
}
_COUNTS = {
    "wrong_fragment": (0.0, 3.0),
    "urgent": (0.0, 10.0),
    "num_failed_logins": (0.0, 5.0),
    "su_attempted": (0.0, 2.0),
    "num_shells": (0.0, 5.0),
    "num_access_files": (0.0, 10.0),
    "num_outbound_cmds": (0.0, 10.0),
    "count": (0.0, 511.0),
    "srv_count": (0.0, 511.0),
    "dst_host_count": (0.0, 255.0),
    "dst_host_srv_count": (0.0, 255.0),
}
_SERVICES = """
IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i efs exec finger ftp
ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 icmp imap4 iso_tsap klogin kshell ldap link login
mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp ntp_u other pm_dump pop_2 pop_3 printer private red_i
remote_job rje shell smtp sql_net ssh sunrpc supdup systat telnet tftp_u tim_i time urh_i urp_i uucp uucp_path vmnet
whois
"""
CATEGORIES = {
    "protocol_type": ("icmp", "tcp", "udp"),
    "service": tuple(_SERVICES.split()),
    "flag": ("OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH"),
}
# What is left is a rate or a yes-or-no.
BOUNDS = {name: (0.0, 1.0) for name in _COLUMNS if name not in CATEGORIES} | LOGARITHMIC | _COUNTS
_FILE = File(
    "kddcup99/kddcup.data_10_percent.gz",
    "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
    2144903,
    ("http://kdd.ics.uci.edu/databases/kddcup99/kddcup.data_10_percent.gz",),
)


def _read(folder: Path) -> tuple[Columns, np.ndarray]:
    lines = gzip.decompress(_FILE.content(folder, dataset="kddcup99")).splitlines()
    drawn = np.sort(np.random.RandomState(_SEED).permutation(len(lines))[:ROWS])
    table = cells(b"\n".join(lines[place] for place in drawn))
    return named(table, _COLUMNS), (table[:, -1] != "normal.").astype(np.int64)


SOURCE = tabular(
    "kddcup99",
    summary="network connections, normal or attack",
    rows=(56000, 14000),
    licence="CC BY 4.0 (UCI Machine Learning Repository)",
    origin=f"kddcup.data_10_percent, {ROWS} rows drawn with seed {_SEED}",
    read=_read,
    bounds=BOUNDS,
    categories=CATEGORIES,
    logarithmic=tuple(LOGARITHMIC),
    classes=("normal", "attack"),
    files=(_FILE,),
)

"""What the ledger's file is asked about runs, in SQL."""

from __future__ import annotations

# A run has ended whose last record says so.
END = "SELECT seq, data FROM record WHERE seq = (SELECT max(seq) FROM record WHERE run = ?) AND kind = 'RunEnded'"
RUN = """SELECT id, began_at, directory, pid, pid_start, boot, EXISTS (
        SELECT 1 FROM record WHERE seq = (SELECT max(seq) FROM record WHERE run = id) AND kind = 'RunEnded'),
        parent, host
    FROM run """
RUNS = RUN + "ORDER BY seq DESC LIMIT ?"
CHILDREN = RUN + "WHERE parent = ?1 AND parent != '' AND id != ?1 ORDER BY seq"
BELOW = """WITH RECURSIVE below(name) AS (
        VALUES (?1) UNION SELECT id FROM below CROSS JOIN run WHERE parent = name AND parent != '') """
DESCENDANTS = BELOW + RUN + "WHERE id IN below AND id != ?1 ORDER BY seq"
WISH = "SELECT kind FROM wish WHERE run = ? ORDER BY kind = 'cancel' DESC, seq DESC LIMIT 1"
WORDS = "SELECT seq, data FROM word WHERE run = ? AND seq > ? ORDER BY seq"
ROWS = """SELECT run, iteration, turn, step, kind, at, data, seq, digest FROM record WHERE run = ? ORDER BY seq"""
ADD_RUN = """INSERT INTO run (id, began_at, directory, host, pid, pid_start, boot, parent)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_ATTEMPT = "INSERT INTO attempt (run, task) VALUES (?, (SELECT seq FROM task WHERE id = ?))"
AGAIN = "UPDATE attempt SET seq = (SELECT max(seq) + 1 FROM attempt) WHERE run = ?"
ASK = "INSERT INTO wish (kind, at, run) SELECT ?, ?, id FROM run WHERE id = ?"
SAY = "INSERT INTO word (data, at, run) SELECT ?, ?, id FROM run WHERE id = ?"
ADD_RECORD = """INSERT INTO record (run, iteration, turn, step, kind, at, data, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""

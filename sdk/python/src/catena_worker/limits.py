"""Every bound and interval of the library, with its reason."""

from __future__ import annotations

PARALLEL_DEFAULT = 4
"""Jobs that a worker runs at once unless told otherwise: enough to overlap waiting, few enough for any host."""

CLAIM_WAIT_MS = 3_000
"""How long a claim waits for jobs. A worker that drains lets its last claim return, so this also bounds that wait."""

CLAIM_JOBS_MAX = 256
"""Jobs that one claim may ask for; the most that a venue gives at once."""

CLAIM_QUEUES_MAX = 16
"""Queues of one worker; the most from which a venue lets one request claim."""

BEAT_WAIT_MS = 500
"""How long a beat waits for signals. A job claimed in the meantime is covered by the next beat, half a second later."""

IDLE_BEAT_S = 5.0
"""Time between the beats of a worker without jobs. They tell the venue that jobs of a claim whose answer was lost are not being
run; it offers them again one lease (10 s) after the claim."""

BEAT_INTERVAL_MIN_S = 0.1
"""Least time between two beats, in case a venue repeats a signal instead of waiting for the next one."""

CALL_WAIT_MS = 1_000
"""How long a call waits for its result before the job is given back. A job that is given back runs from the top again,
which is cheap but not free; most calls end sooner than this."""

CALL_WAIT_BUSY_MS = 50
"""The same if every slot of the worker is taken: the called operation may need this very slot."""

REQUEST_TIMEOUT_S = 30.0
"""How long a request may take in addition to the time for which it asks the venue to wait."""

CONNECT_TIMEOUT_S = 5.0
"""How long opening a connection may take."""

BACKOFF_MIN_S = 0.1
"""Wait before the first repetition of a request that did not reach the venue. It doubles with each further one."""

BACKOFF_MAX_S = 3.0
"""Longest wait before a repetition: a venue that restarts gives every worker one lease (10 s) to report again."""

GRACE_S = 30.0
"""How long running jobs may take to end once the worker was asked to stop. Afterwards they are given back."""

DONE_BATCH_MAX = 64
"""Results sent with one claim. The others follow with the next one."""

DONE_BYTES_MAX = 256 * 1024
"""A larger result is sent by a request of its own, so that one claim never reaches the venue's limit for bodies (10 MB)."""

LOG_LINES_MAX = 1_000
"""Log lines of a job that wait for the next beat. Further ones are dropped and counted."""

LOG_LINE_CHARS_MAX = 2_000
"""Longest log line; the rest is cut off."""

ERROR_CHARS_MAX = 4_000
"""Longest error text sent to the venue; the rest is cut off."""

WAIT_S_MAX = 120
"""Longest time for which a venue lets one request wait for a job."""

HISTORY_PAGE = 1_000
"""Records per page of a history; the most that a venue returns."""

FOLLOW_RETRY_S = 1.0
"""Wait before a broken event stream is opened again, unless the venue states another one."""

REPLAYS_MAX = 1_000
"""Runs of one job in the test helper. A handler that needs more asks or calls without end."""

KEY_FILE_BYTES_MAX = 256
"""Bytes of a key file that are read: 64 hex digits and some blanks."""

TOKEN_S = 300
"""How long a token that a key issues for itself is valid; a venue accepts at most an hour."""

TOKEN_REFRESH_S = 120.0
"""After this time a new token is issued, long before the old one expires, even if the clocks differ by a minute."""

WEBHOOK_AGE_S = 300.0
"""Largest age of a pushed job, and largest difference of the clocks, as Standard Webhooks recommend."""

WEBHOOK_SIGNATURES_MAX = 8
"""Signatures of one request that are tried; a venue sends one."""

"""Data: from files on disk to arrays that a task can use."""

from undamped._base.packages import require

require("undamped.data", "pandas", "PIL", "scipy")

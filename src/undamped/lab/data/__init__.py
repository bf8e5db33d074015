"""Data: from files on disk to arrays that a task can use."""

from undamped._base.packages import require

require("undamped.lab.data", "pandas", "PIL", "scipy")

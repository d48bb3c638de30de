"""The programs that guests are, made or obtained when asked for; none of them is kept with the source."""

// Package ledger reads what a measurement was taken of (contract section 8): the
// versions, command lines, environment and model of a running server's processes, and
// the machine below them.
//
//	l, err := ledger.Read(ctx, ledger.Config{Targets: targets, Redact: redact})
//
// Versions are those of the running processes: of the site-packages that a process maps
// files from or has on its path, of the libraries that it maps, of its own executable.
// Where two processes differ, both versions are told, each with its processes. Finding
// says how a version is known: a library that is mapped is in use, a distribution that
// is installed beside it may not be (pure Python leaves no trace in the mappings).
//
// Everything is read from outside, through /proc/PID/root, so that containers are seen
// as their processes see them. Nothing is imported, run or traced. A process's files are
// other people's: they are opened below its root whatever links stand there, only where
// they are regular, and no further than a bound. What they say is taken for a version or
// a name only where it looks like one.
//
// What could not be read is null, and Unmeasured has the reason. Command lines and
// environment go through Config.Redact; without one they are left out.
package ledger

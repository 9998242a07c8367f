// Package convert writes run directories as what other tools read: a trace for Perfetto,
// or tables as Parquet or CSV.
//
//	res, err := convert.Convert(ctx, dirs, convert.Options{Format: convert.Parquet, Out: "runs.parquet"})
//
// Runs are read a line at a time, through exporter/rundir. What is whole is written; what
// is not, as a line that a crash cut, is told to Options.Note and counted, and nothing else
// is lost by it. Tables are flat: runs, requests, stages, transfers, path, events,
// sessions, quality. A value that was not measured is null, and the column unmeasured has
// the reason under its name in the run directory. Every row has run_dir, and rows of a
// request have record, its line in requests.jsonl from 0: ids are the clients' and may
// come twice.
//
// What is written appears in one step, whole or not at all, and replaces nothing unless
// asked to.
//
// Out of scope: deriving anything (the figures are the run's own), looking at hashes (that
// is exporter/verify's), resources.parquet (it is Parquet already), and putting clocks of
// several nodes together.
package convert

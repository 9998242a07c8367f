// Package experiment reads experiment.yaml: what a run asks, written down before its first
// request (contract section 8), and holds requests to the SLO in it.
//
//	e, err := experiment.Read(file)
//	e.SHA256()                               // of the file's bytes, for metadata.json
//	g := e.SLO.Goodput(run.Records(), start, end)
//
// Reading is strict: an unknown key, a second document or a value that means nothing is an
// error with its line, and no experiment. README.md lists the keys; a test holds it to the
// code. The file is stored in the run directory as it is: what looks like a secret is
// refused.
//
// Out of scope: carrying an experiment out, and comparing runs. Package experiment decides
// when a stop condition holds (Stop.Reached) and counts what met the SLO; it has no clock
// and reads no files.
package experiment

// Package resources writes resources.parquet: what cards, processes and machine did
// during a run, one row a sample of one of them (README.md has the columns).
//
//	w, err := resources.Create(dir, resources.Config{RunID: id, Node: node})
//	...
//	w.GPU(sample)   // any goroutine, never waits for the disk
//	w.Usage(sample)
//	...
//	err = w.Close()
//
// Rows are wide, and a column that does not apply or was not measured is NULL; unmeasured
// then says why, as JSON. In DuckDB:
//
//	SELECT device, avg(power_w), max(gpu_memory_used_bytes) FROM 'resources.parquet'
//	WHERE kind = 'gpu' GROUP BY device;
//
// A Parquet file is readable only when its last bytes are there. So that a crash loses
// at most what was not flushed yet, rows go to resources.parts/ first: every FlushEvery
// one whole Parquet file, renamed into place when it is complete, which can be read while
// the run goes on (resources.parts/*.parquet); 64 of them are merged into one, so that
// there are never many. Close puts the parts together into resources.parquet, mostly by
// copying their bytes, and removes them. What a crash left, Recover puts together.
//
// Rows wait in memory, at most Config.MaxRows; rows over that, as when the disk is full,
// are dropped and counted. Energy is not derived here (exporter/energy); Samples reads a
// file for that.
package resources

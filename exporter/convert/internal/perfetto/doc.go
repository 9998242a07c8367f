// Package perfetto writes runs as a trace in Perfetto's protobuf form, which
// ui.perfetto.dev and trace_processor open.
//
//	t := perfetto.New(w)
//	err := t.Run(perfetto.Run{ID: id, Node: node})   // then its sessions, records, events
//	err = t.Session(s)
//	err = t.Record(number, r)
//	err = t.Event(e)
//	err = t.Close()
//
// Each run is a process of its own, with a number for its id, so that runs and nodes are
// told apart. Below it:
//
//	requests     a track a request: its span, a mark for every point of its timeline, and
//	             below it its text and audio chunks and the way to the first sound
//	sessions     a track a session: its span, with the tracks of its turns below it
//	STAGE (pid)  a track a stage process: what each request waited and was worked on, with
//	             a mark for each hand-over; arrows lead from sender to receiver
//	own delay    counters: the relay's own delay of each request's chunks, at its end
//
// Times are the node's CLOCK_MONOTONIC as it is in the run: runs of one boot of one
// machine stand beside each other as they were, others do not share a time. The wall clock
// of a run's start is an argument of its first mark, and the trace's where all runs agree.
//
// No library for Go has Perfetto's messages; the few that are needed are written field by
// field, in the order that the trace's reader wants: a track ahead of what lies on it, and
// of two events of one moment on one track the earlier one first. Memory: some 150 bytes a
// request.
package perfetto

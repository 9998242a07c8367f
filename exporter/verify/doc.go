// Package verify holds a run directory to what it says of itself, so that a third
// person need not believe it: hashes, schemas, sums that must come out, and every
// metric of requests.jsonl reckoned again from events.jsonl alone.
//
//	res, err := verify.Verify(dir, verify.Options{})
//	err = res.WriteText(w)
//	if !res.OK() { exit code 1 }
//
// It is a second reading of the measurement contract, sections 2 to 6: nothing of
// proxy/timeline is called or decoded into. What the events do not hold enough for is
// listed as not derivable, with the reason, and never passed in silence; a test holds
// the list of fields to the schema. Integers and states must be the same; floats may
// differ by what rounding explains, which each difference states.
//
// Events and records are joined as they come, in the order in which they were
// written: an event of an hour ago is no longer held. What is held grows with the
// requests in flight, the sessions, and 20 bytes for each request.
//
// Where t_audio lies within a chunk (of a body whose chunks come in several reads),
// the events do not tell how much sound was there at that moment. Playback is then
// reckoned twice, with all of that chunk and with the least that makes t_audio, and
// the record must lie between.
//
// Out of scope: whether what the relay read is what the server sent (the twin check
// and the captures are for that), signatures (who can write the directory can seal it
// anew: note Result.Seal.Digest elsewhere), and resources.parquet.
package verify

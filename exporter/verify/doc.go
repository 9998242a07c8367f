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
// requests in flight, the sessions, 20 bytes for each request, and some hundred for each
// process and card of resources.parquet.
//
// Events of form 2 (event_form of metadata.json) tell every measurement of a record but
// the hashes of payloads:
//
//	| what                                            | from                                        |
//	| points, TTFT, TTFA, JCT, chunks, gaps, playback | the points' events, text_chunk, output_chunk |
//	| audible_s, incremental                          | heard_first, heard_last; first_sound, last_sound |
//	| reasoning, empty_events, text_bytes             | reasoning_chunk, empty_audio, text_reset     |
//	| own_delay_us, client_wait_ms, client_slow       | client_write and its wait_ns, client_wait    |
//	| a turn's t_in, bytes_up and input               | ingress, ingress_alternative, request_message, input_taken, the session's input_chunk |
//	| stages                                          | their moments, outputs, steps, cpu_usage, gpu_calls |
//	| transfers                                       | events by the number of the transfer         |
//	| critical_path, cancel_quiesce_ms                | all of these                                 |
//
// Playback is that of the record: a chunk that t_audio lies within is there at t_audio.
// In runs of older programs, whose events tell points and chunks alone, what is missing
// is listed as not derivable, and such playback is reckoned twice, with all of that chunk
// and with the least that makes t_audio: the record must lie between.
//
// Descriptions (names, dialect, model, why a request ended) are taken as told, and so
// are flags but for burst_delivery, paced, client_slow, relay_lag and deadline_passed,
// which are derived, and audio_stall and no_text, which the events may demand.
//
// Of resources.parquet every row is read: times and CPU times that do not fall, nulls that
// have reasons; the figures of the run's energy in metadata.json are reckoned again from the
// samples of the cards and the successes of the records. That one is null is taken as told.
//
// Out of scope: whether what the relay read is what the server sent (the twin check
// and the captures are for that), and signatures (who can write the directory can seal it
// anew: note Result.Seal.Digest elsewhere).
package verify

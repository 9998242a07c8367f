// Package join puts kernel events of stage processes together: into transfers
// between stages, and into the timeline of each request, with how each thing was tied
// to its request. It is pure: events and values in, values out; it opens nothing and
// has no clock.
//
//	j := join.New(join.Config{})
//	j.Processes(list)            // again whenever processes come and go
//	for each event { j.Add(&e) } // in rough order of time
//	j.Sent(flow, tUp)            // of each request that the relay sends
//	j.Flush(now − slack)         // now and then
//	x := j.Request(join.AskOf(record))
//	x.Apply(record)
//	j.Forget(x.Request)
//
// Events may come out of order by Config.SlackNS. All that is held is bounded: what
// was quiet for the longest makes room, and Stats counts it. What was not seen is
// absent. A pair of moments with one end missing is no length of time: nothing is
// closed at the time of asking.
//
// # Transfers
//
// A segment that one stage creates and another one opens and unlinks is a transfer of
// the bytes that it was given. vLLM-Omni's names tell request, edge and chunk; Python's
// random names are joined with the message that names them. The receipt is the last
// open before the unlink. Other transports are told by messages: SGLang-Omni's
// data_ready and data_ack, Mooncake's pull, which the header on its connection matches
// by address and size. Misses are polls that found no segment; those that met one
// which was still empty are counted apart. Other processes' unlinks are no receipt.
//
// # The critical path
//
// Joined.Path holds the gaps between t_in and t_audio, in order; their sum is exactly
// t_audio − t_in. It goes back from the last stage's first output through the inputs
// that each stage had to wait for last. STAGE, FROM and TO are names of stages.
//
//	| gap                 | from                          | to                           |
//	| relay               | t_in                          | t_up                         |
//	| api_in              | t_up                          | first message to a stage     |
//	| submit              | first message to a stage      | queued there (else received) |
//	| STAGE.queue         | queued                        | scheduled                    |
//	| STAGE.prefill       | scheduled                     | first output sent            |
//	| STAGE.decode        | first output sent             | hand-over begins             |
//	| STAGE.compute       | awaited input received        | hand-over or output begins   |
//	| FROM->TO.write      | sender begins to copy         | sender is done               |
//	| FROM->TO.in_flight  | sender is done, or announces  | receiver takes it, or hears  |
//	| FROM->TO.read       | receiver takes it             | receiver is done             |
//	| api.forward         | API process has a result      | it begins to hand it on      |
//	| STAGE.return        | last stage's output sent      | API process has it           |
//	| api_out             | API process has it            | t_audio                      |
//
// Where a milestone was not seen, or would go back in time, the gaps beside it are one,
// named by the first and the last of them: submit..thinker.prefill. The first stage of a
// server whose scheduler tells no times has STAGE.compute in place of queue, prefill and
// decode. In vLLM-Omni's first generation all data pass the API process: FROM->api is the
// way of a stage's result to it, FROM->TO what it sends on in the stage's place.
//
// # Confidence
//
// 1 is an identity that both sides know, with both ends seen; the other grades are the
// constants of this package. A request without an id is matched by time only if no
// other one in flight could own the work of the stages.
package join

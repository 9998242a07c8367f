// Package load sends a small set of requests to one server, over and over, by a plan:
// what drives a server for `omnitap calibrate` and `omnitap run` where the user brings
// no load generator.
//
//	set, err := load.FromCaptures([]string{"captures/"}) // or load.Demo()
//	r, err := load.Run(ctx, "http://127.0.0.1:8090", set, load.Plan{Requests: 64, Concurrency: 4}, "cal-7")
//	r.Sent[0].Status, r.Lag().P99
//
// # Loops
//
// An open loop (Plan.Rate, Plan.Times) sends when the plan says, whatever has become of
// the requests before: a server that stalls gets every arrival that it would have got,
// and the wait is in its own figures (a generator that waits hides it: coordinated
// omission). A closed loop (Plan.Concurrency) sends the next request when an answer has
// ended.
//
// What an open loop sends too late is the generator's doing: Sent.SentNS − Sent.PlannedNS,
// taken ahead of looking for a connection. Dialing, where no connection is free, comes
// behind SentNS and is the server's. The bound on requests under way (MaxUnderWay) delays
// nothing: what comes above it is not sent, says so, and makes an error of the run.
//
// # Answers
//
// Answers are read as they come, counted and forgotten: one buffer a request under way.
// What they mean (first text, first sound, an error inside a 200) is in the relay's
// records, by the request id. Errors and results hold nothing of request or answer.
//
// Connections are used again. One that was idle for two seconds is closed here, before
// servers do (uvicorn after five): a request that meets the server's FIN would fail and
// say nothing of the server. net/http sends a request again where nothing of it had left,
// and a GET also where the connection broke before its answer; nothing else is sent twice.
//
// Out of scope: WebSockets, TLS, HTTP/2, redirects, retries, and any judgement.
package load

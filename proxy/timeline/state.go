package timeline

// State is the terminal state of a request: exactly one each (contract section 5).
type State string

// The terminal states.
const (
	Success           State = "success"
	QualityFailed     State = "quality-failed"
	ClientCancelled   State = "client-cancelled"
	DeadlineExceeded  State = "deadline-exceeded"
	AdmissionRejected State = "admission-rejected"
	OOM               State = "oom"
	WorkerLost        State = "worker-lost"
	TransportError    State = "transport-error"
	InvalidOutput     State = "invalid-output"
	HarnessError      State = "harness-error"
	InvalidRequest    State = "invalid-request"
	ServerError       State = "server-error"
)

// States lists every terminal state in the contract's order.
func States() []State {
	return []State{
		Success, QualityFailed, ClientCancelled, DeadlineExceeded, AdmissionRejected, OOM,
		WorkerLost, TransportError, InvalidOutput, HarnessError, InvalidRequest, ServerError,
	}
}

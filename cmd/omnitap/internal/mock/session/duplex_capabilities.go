package session

// What vLLM-Omni says that a duplex session can do: one that answers through
// the chat path, and one whose model is duplex itself.
const (
	chatPathCapabilities = `{"supports_session_adapter":true,"supports_model_native_turn_policy":false,` +
		`"supports_external_turn_signal":true,"supports_client_commit":true,"supports_barge_in":true,` +
		`"supports_playback_ack":true,"supports_input_append":false,"supports_replace_latest_chunk":true,` +
		`"supports_reencode_context":true,"supports_rollback_to_checkpoint":false,"supports_turn_commit_only":true,` +
		`"supports_kv_lease":false,"supports_core_kv_lease":false,"supports_model_internal_state":false,` +
		`"supports_stage_resumption":false,"supports_scheduler_native_append":false,` +
		`"supports_core_resumable_request":false,"supports_stage_connector_handoff":false,` +
		`"supports_independent_io_streams":false,"supports_realtime_endpoint":false,"supports_multi_session":false,` +
		`"supports_multi_session_same_replica":false,"supports_session_lease":false,"supports_session_resume":false,` +
		`"session_admission_mode":"serving_managed","supports_audio_truncate":false,"requires_model_runner_kv":false,` +
		`"requires_native_stage_role":false,"implementation_level":"serving_session_adapter",` +
		`"adapter_patterns":["chunk_group_append"],"input_modes":["turn_commit_only","reencode_context"],` +
		`"signal_sources":["client_event","server_policy","model_native"],"stage_handoff_transport":null,` +
		`"chunk_period_ms":1000,"target_barge_in_latency_ms":1000}`
	nativeCapabilities = `{"supports_session_adapter":true,"supports_model_native_turn_policy":true,` +
		`"supports_external_turn_signal":true,"supports_client_commit":true,"supports_barge_in":false,` +
		`"supports_playback_ack":true,"supports_input_append":true,"supports_replace_latest_chunk":false,` +
		`"supports_reencode_context":false,"supports_rollback_to_checkpoint":false,"supports_turn_commit_only":false,` +
		`"supports_kv_lease":false,"supports_core_kv_lease":false,"supports_model_internal_state":true,` +
		`"supports_stage_resumption":true,"supports_scheduler_native_append":false,` +
		`"supports_core_resumable_request":true,"supports_stage_connector_handoff":true,` +
		`"supports_independent_io_streams":true,"supports_realtime_endpoint":true,"supports_multi_session":false,` +
		`"supports_multi_session_same_replica":false,"supports_session_lease":true,"supports_session_resume":true,` +
		`"session_admission_mode":"engine_managed","supports_audio_truncate":true,"requires_model_runner_kv":true,` +
		`"requires_native_stage_role":true,"implementation_level":"model_native_duplex",` +
		`"adapter_patterns":["scheduler_data_plane"],"input_modes":["append_audio_chunk"],` +
		`"signal_sources":["model_native","client_event","server_policy"],` +
		`"stage_handoff_transport":"scheduler_data_plane","chunk_period_ms":1000,"target_barge_in_latency_ms":null}`
)

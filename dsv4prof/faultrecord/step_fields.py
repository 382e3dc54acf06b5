"""What servers call the same facts in their logs of steps, most usual names first."""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STEP = _names("step step_id step_index step_idx iteration iter it forward_ct forward n")
TIME = _names(
    "t time ts timestamp time_s t_s elapsed elapsed_s start_s wall time_ms t_ms timestamp_ms ts_ms elapsed_ms time_us "
    "ts_us time_ns ts_ns timestamp_ns t_ns"
)
RUNNING = _names(
    "running num_running running_reqs num_running_reqs running_requests num_reqs num_requests requests raw_bs real_bs "
    "actual_bs actual_batch_size batch_size bs num_seqs active n_running num_active active_reqs active_requests live"
)
PADDED = _names(
    "padded_bs padded padded_batch_size graph_bs cuda_graph_bs captured_bs graph_batch_size bucket capture_size "
    "padded_size bs_padded pad_to slots"
)
PADDING = _names("padding num_padding num_padded padding_slots padding_rows num_pad pad")
LAST_STEP = _names("last_step last_completed_step last_finished_step last_step_id step iteration forward_ct")
KERNEL = _names("kernel_running running_kernel kernel kernel_name current_kernel active_kernel gpu_kernel")
AGE = _names(
    "kernel_age_s kernel_age age_s running_for_s kernel_running_s kernel_running_for_s kernel_age_ms age_ms "
    "running_for_ms duration_s"
)
UTIL = _names("gpu_util gpu_utilization gpu_busy_percent gpu_busy sm_util utilization util")
END = _names("end_t t_end end end_time end_ts finished_at t1")
DURATION = _names("duration duration_s dur_s duration_ms dur_ms step_ms latency_ms step_time_ms")

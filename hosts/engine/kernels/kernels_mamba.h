/*
 * kernels_mamba.h - kernels of a Mamba layer; kernels.cu includes it.
 *
 * A channel's `state` numbers h follow each other in time:
 *
 *     h = exp(step a) h + step b u,  y = c h + skip u,  gated = y SiLU(gate)
 *
 * with step = softplus(dt) and a = -exp(decay).  All states are kept, so
 * that nothing is run through twice.  Where a thread has a channel, its
 * neighbours have the next ones, and states lie state by state.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

#define SIGMOID(x) (1.0f / (1.0f + expf(-(x))))
/* Above 20 it equals x in every digit of a float. */
#define SOFTPLUS(x) ((x) > 20.0f ? (x) : log1pf(expf(x)))
/* d SiLU(x) / dx, given the sigmoid s of x. */
#define SILU_SLOPE(x, s) ((s) * (1.0f + (x) * (1.0f - (s))))

KERNEL(mamba_conv_forward, mamba_conv_args)
{
    PHASE(mamba_conv_forward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_conv_forward_threads);

        if (i < k.rows * k.inner) {
            const int row = i / k.inner;
            const int d = i % k.inner;
            float sum = k.b[d];

            for (int j = 0; j < k.taps; j++) {
                const int back = k.taps - 1 - j;

                if (row - START(row) >= back) {
                    sum += k.w[j * k.inner + d] *
                           k.xz[(row - back) * 2 * k.inner + d];
                }
            }
            k.pre[i] = sum;
            k.u[i] = sum * SIGMOID(sum);
        }
    }
}

KERNEL(mamba_conv_backward, mamba_conv_backward_args)
{
    PHASE(mamba_conv_backward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_conv_backward_threads);

        if (i < k.rows * k.inner) {
            const int row = i / k.inner;
            const int d = i % k.inner;
            float sum = 0.0f;

            for (int j = 0; j < k.taps; j++) {
                const int ahead = k.taps - 1 - j;

                if (row % k.seq + ahead < k.seq &&
                    START(row + ahead) <= row) {
                    const int at = i + ahead * k.inner;
                    const float pre = k.pre[at];
                    const float s = SIGMOID(pre);

                    sum += k.w[j * k.inner + d] * k.du[at] * SILU_SLOPE(pre, s);
                }
            }
            k.d_xz[row * 2 * k.inner + d] = sum;
        }
    }
}

/* One thread for each weight.  The biases come after the taps. */
KERNEL(mamba_conv_param_backward, mamba_conv_param_args)
{
    PHASE(mamba_conv_param_backward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_conv_param_backward_threads);

        if (i < (k.taps + 1) * k.inner) {
            const int j = i / k.inner;
            const int d = i % k.inner;
            const int back = j < k.taps ? k.taps - 1 - j : 0;
            float sum = 0.0f;

            for (int row = 0; row < k.rows; row++) {
                if (row - START(row) >= back) {
                    const float pre = k.pre[row * k.inner + d];
                    const float s = SIGMOID(pre);
                    float value = k.du[row * k.inner + d] * SILU_SLOPE(pre, s);

                    if (j < k.taps) {
                        value *= k.xz[(row - back) * 2 * k.inner + d];
                    }
                    sum += value;
                }
            }
            if (j < k.taps) {
                k.dw[i] += sum;
            } else {
                k.db[d] += sum;
            }
        }
    }
}

/* One thread for each channel of a sequence, from the first step to the
 * last. */
KERNEL(mamba_scan_forward, mamba_scan_args)
{
    PHASE(mamba_scan_forward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_scan_forward_threads);
        const int d = i % k.inner;
        const int first = i / k.inner * k.seq;

        for (int t = 0; t < k.seq && i < k.batch * k.inner; t++) {
            const int row = first + t;
            const int at = row * k.inner + d;
            const float *bc = k.bc + row * 2 * k.state;
            const float step = SOFTPLUS(k.dt[at]);
            const float u = k.u[at];
            const float gate = k.gate[row * 2 * k.inner + d];
            float y = k.skip[d] * u;

            for (int s = 0; s < k.state; s++) {
                const float a = -expf(k.decay[s * k.inner + d]);
                const int h_at = (row * k.state + s) * k.inner + d;
                float h = step * bc[s] * u;

                if (row > START(row)) {
                    h += expf(step * a) * k.states[h_at - k.state * k.inner];
                }
                k.states[h_at] = h;
                y += bc[k.state + s] * h;
            }
            k.y[at] = y;
            k.gated[at] = y * gate * SIGMOID(gate);
        }
    }
}

/* One thread for each channel of a sequence, from the last step to the
 * first. */
KERNEL(mamba_scan_backward, mamba_scan_backward_args)
{
    PHASE(mamba_scan_backward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_scan_backward_threads);
        const int d = i % k.inner;
        const int first = i / k.inner * k.seq;
        const int pitch = k.state * k.inner;

        for (int t = k.seq - 1; t >= 0 && i < k.batch * k.inner; t--) {
            const int row = first + t;
            const int at = row * k.inner + d;
            const float *bc = k.bc + row * 2 * k.state;
            const float step = SOFTPLUS(k.dt[at]);
            const float u = k.u[at];
            const float gate = k.gate[row * 2 * k.inner + d];
            const float open = SIGMOID(gate);
            const float dy = k.d_gated[at] * gate * open;
            float du = dy * k.skip[d];
            float d_step = 0.0f;

            for (int s = 0; s < k.state; s++) {
                const float a = -expf(k.decay[s * k.inner + d]);
                const int h_at = row * pitch + s * k.inner + d;
                float dh = dy * bc[k.state + s];

                if (t + 1 < k.seq && START(row + 1) <= row) {
                    const float next = SOFTPLUS(k.dt[at + k.inner]);

                    dh += expf(next * a) * k.d_states[h_at + pitch];
                }
                k.d_states[h_at] = dh;
                du += dh * step * bc[s];
                d_step += dh * bc[s] * u;
                if (row > START(row)) {
                    d_step += dh * a * expf(step * a) * k.states[h_at - pitch];
                }
            }
            k.du[at] = du;
            k.dy[at] = dy;
            k.d_dt[at] = d_step * SIGMOID(k.dt[at]);
            k.d_gate[row * 2 * k.inner + d] =
                k.d_gated[at] * k.y[at] * SILU_SLOPE(gate, open);
        }
    }
}

KERNEL(mamba_bc_backward, mamba_bc_args)
{
    SHARED(float, fold, [ROW_THREADS]);

    PHASE(ROW_THREADS)
    {
        const int column = ROW_OF(thread);
        float sum = 0.0f;

        if (column < k.rows * 2 * k.state) {
            const int row = column / (2 * k.state);
            const int s = column % k.state;
            const int out = column % (2 * k.state) >= k.state;

            for (int d = ROW_LANE(thread); d < k.inner; d += ROW_LANES) {
                const int at = row * k.inner + d;
                const int h_at = (row * k.state + s) * k.inner + d;

                if (out) {
                    sum += k.dy[at] * k.states[h_at];
                } else {
                    sum += k.d_states[h_at] * SOFTPLUS(k.dt[at]) * k.u[at];
                }
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int column = ROW_OF(thread);

        if (column < k.rows * 2 * k.state && ROW_LANE(thread) == 0) {
            k.d_bc[column] = fold[thread];
        }
    }
}

/* One thread for each weight, over all rows in order. */
KERNEL(mamba_param_backward, mamba_param_args)
{
    PHASE(mamba_param_backward_threads)
    {
        const int i = GLOBAL_INDEX(mamba_param_backward_threads);
        const int pitch = k.state * k.inner;

        if (i < pitch) {
            const int d = i % k.inner;
            const float a = -expf(k.decay[i]);
            float sum = 0.0f;
            float skip = 0.0f;

            for (int row = 0; row < k.rows; row++) {
                const int at = row * k.inner + d;

                if (row > START(row)) {
                    const float step = SOFTPLUS(k.dt[at]);

                    sum += k.d_states[row * pitch + i] * step * a *
                           expf(step * a) * k.states[(row - 1) * pitch + i];
                }
                skip += k.dy[at] * k.u[at];
            }
            k.d_decay[i] += sum;
            if (i < k.inner) {
                k.d_skip[i] += skip;
            }
        }
    }
}

"""What the names of kernels say of their class and numbers."""

from __future__ import annotations

import pytest

from busfare.cost.kernels.classes import class_of, type_of


@pytest.mark.parametrize(
    ("name", "kind", "pipeline"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise", "fp32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "gemm", "bf16_tensor"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", "gemm", "fp16_tensor"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", "bf16_tensor"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm", "fp16_tensor"),
        ("volta_sgemm_128x64_tn", "gemm", "fp32"),
        ("triton_poi_fused_add_convolution_relu_3", "elementwise", None),
        ("triton_poi_fused__scaled_dot_product_flash_attention_1", "elementwise", "fp16_tensor"),
        ("triton_per_fused__softmax_mm_2", "softmax", None),
        ("triton_red_fused_native_layer_norm_0", "norm", None),
        ("triton_red_fused_convolution_sum_4", "reduction", None),
        ("triton_tem_fused_mm_7", "gemm", None),
        ("void fast_hadamard_transform_kernel<float>", "other", "fp32"),
        ("void multi_tensor_apply_kernel<AdamFunctor<float>>", "optimizer", "fp32"),
        ("convert_half_to_float", "other", "fp16"),
        ("convex_hull", "other", None),
        ("compute_convection", "other", None),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", "activation", "bf16"),
        ("void vllm::rotary_embedding_kernel<c10::Half, true>", "activation", "fp16"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1", "gemm", "fp16_tensor"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "fp32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "convolution", "tf32_tensor"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4, cutlass::half_t>>", "attention", "fp16_tensor"),
        ("triton_poi_fused_add_mul_0", "elementwise", None),
        ("triton_red_fused_mean_1", "reduction", None),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 32, true, 1, true>", "norm", "fp32"),
        ("void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10>", "softmax", "fp16"),
        ("jacobi_step(double const*, double*, int)", "other", "fp64"),
        ("loop_multiply_fusion_2", "elementwise", None),
        ("loop_fusion", "elementwise", None),
        ("wrapped_tanh_2", "elementwise", None),
        ("loop_gather_fusion", "gather", None),
        ("input_reduce_fusion_5", "reduction", None),
        ("cupy_true_divide__float32_float_float32", "elementwise", "fp32"),
        ("loop_of_mine", "other", None),
        ("", "other", None),
    ],
)  # fmt: skip
def test_names_of_kernels_tell_class_and_pipeline(name: str, kind: str, pipeline: str | None) -> None:
    assert (class_of(name), type_of(name)) == (kind, pipeline)

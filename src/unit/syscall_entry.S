# syscall(2) the function: as libc's, but the unit is told of changes to mappings and of sandboxes first, and takes those of signal
# dispositions itself. In assembler because a raw clone() through it returns on another stack.
        .text
        .globl  syscall
        .type   syscall, @function
syscall:
        .cfi_startproc
        endbr64
        cmpq    $13, %rdi               # rt_sigaction
        je      4f
        cmpq    $9, %rdi                # mmap
        je      1f
        cmpq    $10, %rdi               # mprotect
        je      1f
        cmpq    $11, %rdi               # munmap
        je      1f
        cmpq    $25, %rdi               # mremap
        je      1f
        cmpq    $157, %rdi              # prctl
        je      1f
        cmpq    $317, %rdi              # seccomp
        je      1f
        cmpq    $329, %rdi              # pkey_mprotect
        jne     2f
1:      pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        pushq   %rcx
        pushq   %r8
        pushq   %r9
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 56
        call    auxtrail_before_syscall
        addq    $8, %rsp
        popq    %r9
        popq    %r8
        popq    %rcx
        popq    %rdx
        popq    %rsi
        popq    %rdi
        .cfi_adjust_cfa_offset -56
2:      movq    %rdi, %rax
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        movq    %r8, %r10
        movq    %r9, %r8
        movq    8(%rsp), %r9
        syscall
5:      cmpq    $-4095, %rax
        jae     3f
        ret
3:      negl    %eax
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        call    __errno_location@PLT
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        movl    %ecx, (%rax)
        movq    $-1, %rax
        ret
4:      pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        pushq   %rcx
        pushq   %r8
        .cfi_adjust_cfa_offset 40
        call    auxtrail_rt_sigaction
        movq    %rdx, %r11              # whether it was taken
        popq    %r8
        popq    %rcx
        popq    %rdx
        popq    %rsi
        popq    %rdi
        .cfi_adjust_cfa_offset -40
        testq   %r11, %r11
        jnz     5b
        jmp     2b
        .cfi_endproc
        .size   syscall, .-syscall
        .section .note.GNU-stack,"",@progbits
